// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"fmt"
	"regexp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/usage"
)

// unique matches the ids that no two devices in the world share. Other vendors'
// plugins number the devices of each node.
var unique = regexp.MustCompile(`^(GPU|MIG)-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

// contest knows which nodes publish a device. One that two nodes publish belongs to
// the node that published it first, and the other does not give it out: a node can
// make neither another node's devices used nor its own pods look like the others'.
// What the first node has is never changed by what a later one says. State.graphMu
// guards it.
type contest struct {
	nodes map[string][]claimant // device id -> who publishes it, the owner first
}

// claimant is a node that publishes a device.
type claimant struct {
	node    string
	object  types.UID
	created time.Time // of the object: the order after a restart, when nobody was seen first
}

func newContest() *contest { return &contest{nodes: map[string][]claimant{}} }

// enter replaces what a node publishes, nil for nothing, and returns the other nodes
// whose devices are now owned otherwise. With seen false, who was first is not known,
// and the older object is taken to be.
func (c *contest) enter(old, n *usage.Node, seen bool) (others []string) {
	now := map[string]bool{}
	if n != nil {
		for _, id := range deviceIDs(n) {
			now[id] = true
		}
	}
	if old != nil {
		for _, id := range deviceIDs(old) {
			if !now[id] {
				others = append(others, c.leave(id, old.Name)...)
			}
		}
	}
	for id := range now {
		all := c.nodes[id]
		if slices.ContainsFunc(all, func(o claimant) bool { return o.node == n.Name }) {
			continue
		}
		me, at := claimant{n.Name, n.ObjectUID, n.Created}, len(all)
		if !seen {
			at = slices.IndexFunc(all, func(o claimant) bool {
				return o.created.After(me.created) || o.created.Equal(me.created) && o.node > me.node
			})
			if at < 0 {
				at = len(all)
			}
		}
		if at == 0 && len(all) > 0 {
			others = append(others, all[0].node)
		}
		c.nodes[id] = slices.Insert(all, at, me)
	}
	slices.Sort(others)
	return slices.Compact(others)
}

// leave takes a node out of a device's claimants and returns the heir, if any.
func (c *contest) leave(id, node string) []string {
	all := c.nodes[id]
	owned := len(all) > 0 && all[0].node == node
	all = slices.DeleteFunc(all, func(o claimant) bool { return o.node == node })
	if len(all) == 0 {
		delete(c.nodes, id)
		return nil
	}
	c.nodes[id] = all
	if !owned {
		return nil
	}
	return []string{all[0].node}
}

// owner is the node that a device belongs to; empty if that is not asked of its id.
func (c *contest) owner(id string) string {
	if all := c.nodes[id]; len(all) > 0 {
		return all[0].node
	}
	return ""
}

func deviceIDs(n *usage.Node) []string {
	var out []string
	for _, a := range n.Accels {
		for i := range a.Graph.GPUs {
			if id := a.Graph.GPUs[i].UUID; unique.MatchString(id) {
				out = append(out, id)
			}
		}
	}
	return out
}

// withhold takes the devices that belong to other nodes out of those that n, which
// nobody has seen yet, gives out, and says which they are.
func (c *contest) withhold(n *usage.Node) error {
	var first, owner string
	count, changed := 0, false
	for i, a := range n.Accels {
		var theirs nvtopo.Mask
		for p := range a.Graph.GPUs {
			id := a.Graph.GPUs[p].UUID
			if o := c.owner(id); o != "" && o != n.Name {
				theirs |= 1 << p
				if count++; count == 1 {
					first, owner = id, o
				}
			}
		}
		healthy, degraded := a.Graph.Healthy()&^theirs, a.Graph.Degraded()&^theirs
		if healthy != a.Healthy || degraded != a.Degraded {
			b := *a
			b.Healthy, b.Degraded = healthy, degraded
			n.Accels[i], changed = &b, true
		}
	}
	if changed {
		n.Complete()
	}
	if count == 0 {
		return nil
	}
	more := ""
	if count > 1 {
		more = fmt.Sprintf(" (and %d others)", count-1)
	}
	return fmt.Errorf("NodeGPUTopology %s: spec.gpus: %s%s is published by node %s already and is not given out on node %s; "+
		"if it was moved, delete the NodeGPUTopology or the Node where it no longer is", n.Name, first, more, owner, n.Name)
}

// contested puts what withhold says now, which may be nothing, in the place of what it
// said of the object before. It needs State.graphMu.
func (e *topologyEntry) contested(object types.UID, now error) {
	next := fault{object: object}
	if f := e.fault.Load(); f != nil && f.object == object {
		next = *f
	}
	next.contested = now
	err := next.err()
	if err == nil {
		e.fault.Store(nil)
		return
	}
	next.text = err.Error()
	e.fault.Store(&next)
}

// resettle makes nodes give out what is theirs now, and reports whether that may be
// more than before. It needs State.graphMu.
func (s *State) resettle(names []string) (freed bool) {
	for _, name := range names {
		x := s.cells.get(name)
		if x == nil || x.topology.Node() == nil {
			continue
		}
		n := *x.topology.Node()
		n.Accels = slices.Clone(n.Accels)
		x.topology.contested(n.ObjectUID, s.contest.withhold(&n))
		x.topology.node.Store(&n)
		x.usage.Store(nil)
		x.rev.Add(1)
		s.touch(x)
		freed = true
	}
	return freed
}
