// SPDX-License-Identifier: Apache-2.0

package reservations

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

// EvictWithin is how long the eviction of a nominated pod's victim may take to reach the
// API server. One that is not being deleted by then is not going: its eviction failed.
const EvictWithin = 30 * time.Second

// Nominated is the set that a nominated pod is to get once the pods it waits for are gone.
// It counts only as long as the scheduling queue has the pod nominated for that node,
// and for pods of its priority or less. The queue itself promises a number of
// devices, which is not enough: another pod could take one of a linked pair
// although other devices are free. It is immutable.
type Nominated struct {
	UID        types.UID
	Node       *Node
	Allocation *allocation.Allocation
	Until      time.Time

	victims map[types.UID]time.Time // evicted for this pod, since when
	awaited []types.UID             // that go anyway, or for another pod
}

// WaitsFor says for whom a nominated pod waits.
type WaitsFor struct {
	Victims []types.UID // evicted for it
	Awaited []types.UID // that go without its doing
	Until   time.Time   // when they should be gone, and the pod have had its turn
}

// ReserveNominated keeps on the node of a what a pod is to get, until it is bound or gone,
// its nomination ends or the time is over. Another nominated reservation of the pod is replaced; a
// victim that both name has been on its way since the first.
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

// EndNominated forgets what a pod was to get.
func (t *Table) EndNominated(uid types.UID) (c Change) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.Freed = t.endNominated(uid, &c) != nil
	return c
}

// endNominated returns the one that ended, if any. What it kept from others is free now,
// unless its pod took it, and nobody else says so: who calls says it. It needs Table.mu.
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

// ExpireNominated forgets the nominated reservations whose time is over.
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

// Nominated returns what is kept for a pod, or nil.
func (t *Table) Nominated(uid types.UID) *Nominated {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.nominated[uid]
}

// ListNominated returns all nominated reservations.
func (t *Table) ListNominated() []*Nominated {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Values(t.nominated))
}

// took reports whether a pod that was bound, or is held another set for, has all that was
// held for it.
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

// Leaving returns the victims that were chosen so lately that they may be going, whether the
// API server has heard of it or not.
func (n *Nominated) Leaving(now time.Time) []types.UID {
	var out []types.UID
	for v, since := range n.victims {
		if now.Sub(since) <= EvictWithin {
			out = append(out, v)
		}
	}
	return out
}

// WaitsFor returns all pods that are to end before this one can start.
func (n *Nominated) WaitsFor() []types.UID {
	return slices.AppendSeq(slices.Clone(n.awaited), maps.Keys(n.victims))
}
