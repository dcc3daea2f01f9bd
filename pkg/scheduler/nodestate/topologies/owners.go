// SPDX-License-Identifier: Apache-2.0

package topologies

import (
	"fmt"
	"regexp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
)

// unique matches globally unique device ids. The plugins of other vendors number the devices of each
// node.
var unique = regexp.MustCompile(`^(GPU|MIG)-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

// owners has the nodes that publish each device. A device that two nodes publish belongs to the first
// publisher, and the other node does not offer it. So a node can make neither another node's devices look
// used, nor its own pods look like pods of the other. The devices of the first node are never changed by
// a later publisher. Cache.mu guards it.
type owners struct {
	nodes map[string][]publisher // device id -> its publishers, the owner first
}

// publisher is a node that publishes a device.
type publisher struct {
	node    string
	object  types.UID
	created time.Time // of the object: gives the order after a restart, when it is unknown who was first
}

func newOwners() *owners { return &owners{nodes: map[string][]publisher{}} }

// publish replaces a node's published devices, old, by those of n; nil is none. It returns the other
// nodes whose owned devices changed by that. With seen false it is unknown who was first, and the node of
// the older object is taken to be.
func (o *owners) publish(old, n *usage.Node, seen bool) (others []string) {
	now := map[string]bool{}
	if n != nil {
		for _, id := range deviceIDs(n) {
			now[id] = true
		}
	}
	if old != nil {
		for _, id := range deviceIDs(old) {
			if !now[id] {
				others = append(others, o.leave(id, old.Name)...)
			}
		}
	}
	for id := range now {
		all := o.nodes[id]
		if slices.ContainsFunc(all, func(p publisher) bool { return p.node == n.Name }) {
			continue
		}
		me, at := publisher{n.Name, n.ObjectUID, n.Created}, len(all)
		if !seen {
			at = slices.IndexFunc(all, func(p publisher) bool {
				return p.created.After(me.created) || p.created.Equal(me.created) && p.node > me.node
			})
			if at < 0 {
				at = len(all)
			}
		}
		if at == 0 && len(all) > 0 {
			others = append(others, all[0].node)
		}
		o.nodes[id] = slices.Insert(all, at, me)
	}
	slices.Sort(others)
	return slices.Compact(others)
}

// leave removes a node from the publishers of a device. It returns the new owner, if this node was the
// owner and another node publishes the device.
func (o *owners) leave(id, node string) []string {
	all := o.nodes[id]
	owned := len(all) > 0 && all[0].node == node
	all = slices.DeleteFunc(all, func(p publisher) bool { return p.node == node })
	if len(all) == 0 {
		delete(o.nodes, id)
		return nil
	}
	o.nodes[id] = all
	if !owned {
		return nil
	}
	return []string{all[0].node}
}

// owner returns the node that a device belongs to; empty if it is not published, or its id is not unique.
func (o *owners) owner(id string) string {
	if all := o.nodes[id]; len(all) > 0 {
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

// withhold removes the devices that belong to other nodes from those that n offers, and returns an error
// that names them. n must not be published yet.
func (o *owners) withhold(n *usage.Node) error {
	var first, owner string
	count, changed := 0, false
	for i, a := range n.Accels {
		var theirs nvtopo.Mask
		for p := range a.Graph.GPUs {
			id := a.Graph.GPUs[p].UUID
			if other := o.owner(id); other != "" && other != n.Name {
				theirs |= 1 << p
				if count++; count == 1 {
					first, owner = id, other
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

// withholdAnew recomputes the offered devices of nodes. It returns those of them that have a topology,
// which may offer more than before. The caller holds c.mu.
func (c *Cache) withholdAnew(nodes []string) (changed []string) {
	for _, name := range nodes {
		e := c.lookup(name)
		if e == nil || e.Node() == nil {
			continue
		}
		n := *e.Node()
		n.Accels = slices.Clone(n.Accels)
		e.setContested(n.ObjectUID, c.owners.withhold(&n))
		e.node.Store(&n)
		changed = append(changed, name)
	}
	return changed
}
