// SPDX-License-Identifier: Apache-2.0

package reservations

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

// EvictWithin is how long the eviction of a nominated pod's victim may take to reach the API server. A
// victim that is not being deleted by then stays: its eviction failed.
const EvictWithin = 30 * time.Second

// Nominated is the nominated allocation of a pod: the devices that it gets once the pods it waits for
// have ended. It applies only while the scheduling queue has the pod nominated for that node, and to pods
// of its priority or less. The queue itself keeps a number of devices, which is not enough: another pod
// could take one of a linked pair although other devices are free. It is immutable.
type Nominated struct {
	UID        types.UID
	Node       *Node
	Allocation *allocation.Allocation
	Until      time.Time

	victims map[types.UID]time.Time // evicted for this pod, with the time of eviction
	awaited []types.UID             // pods that end anyway, or for another pod
}

// WaitsFor has the pods that a nominated pod waits for.
type WaitsFor struct {
	Victims []types.UID // evicted for it
	Awaited []types.UID // that end for another reason
	Until   time.Time   // when they should have ended, and the pod have been tried
}

// ReserveNominated keeps an allocation for a pod on a node, until the pod is bound or gone, its
// nomination ends or the time is over. It replaces another nominated allocation of the pod; a victim
// named in both keeps the eviction time of the first.
func (t *Table) ReserveNominated(node *Node, uid types.UID, a *allocation.Allocation, w WaitsFor) (c Change) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := &Nominated{UID: uid, Node: node, Allocation: a, Until: w.Until, victims: map[types.UID]time.Time{}, awaited: w.Awaited}
	for _, v := range w.Victims {
		n.victims[v] = t.clock.Now()
	}
	if old := t.endNominated(uid, &c); old != nil {
		for v, since := range old.victims {
			if _, again := n.victims[v]; again {
				n.victims[v] = since
			}
		}
		c.Freed = !old.took(node.name, a)
	}
	t.nominated[uid] = n
	node.nominated = append(node.nominated, n)
	node.publish()
	c.Nodes = append(c.Nodes, node)
	return c
}

// EndNominated forgets the nominated allocation of a pod.
func (t *Table) EndNominated(uid types.UID) (c Change) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.Freed = t.endNominated(uid, &c) != nil
	return c
}

// endNominated ends the pod's nominated allocation and returns it, or nil. Its devices are free now,
// unless its pod took them, and no other event reports that, so the caller must. The caller holds
// Table.mu.
func (t *records) endNominated(uid types.UID, c *Change) *Nominated {
	n, ok := t.nominated[uid]
	if !ok {
		return nil
	}
	delete(t.nominated, uid)
	n.Node.nominated = slices.DeleteFunc(n.Node.nominated, func(o *Nominated) bool { return o == n })
	n.Node.publish()
	c.Nodes = append(c.Nodes, n.Node)
	return n
}

// ExpireNominated forgets the nominated allocations whose time is over.
func (t *Table) ExpireNominated() (c Change) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.nominated) == 0 {
		return c
	}
	now := t.clock.Now()
	for uid, n := range t.nominated {
		if now.After(n.Until) {
			t.endNominated(uid, &c)
			c.Freed = true
		}
	}
	return c
}

// Nominated returns the nominated allocation of a pod, or nil.
func (t *Table) Nominated(uid types.UID) *Nominated {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.nominated[uid]
}

// ListNominated returns all nominated allocations.
func (t *Table) ListNominated() []*Nominated {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Values(t.nominated))
}

// took reports whether a pod that was bound, or has another nominated allocation now, has all devices of
// n.
func (n *Nominated) took(node string, a *allocation.Allocation) bool {
	if n.Node.name != node || a == nil {
		return false
	}
	for _, c := range n.Allocation.Containers {
		has := a.GPUs(c.Resource)
		if slices.ContainsFunc(c.GPUs, func(id string) bool { return !slices.Contains(has, id) }) {
			return false
		}
	}
	return true
}

// Leaving returns the victims that were chosen at most EvictWithin ago, whether or not the API server has
// received their evictions.
func (n *Nominated) Leaving(now time.Time) []types.UID {
	var out []types.UID
	for v, since := range n.victims {
		if now.Sub(since) <= EvictWithin {
			out = append(out, v)
		}
	}
	return out
}

// WaitsFor returns all pods that must end before this one can start.
func (n *Nominated) WaitsFor() []types.UID {
	return slices.AppendSeq(slices.Clone(n.awaited), maps.Keys(n.victims))
}
