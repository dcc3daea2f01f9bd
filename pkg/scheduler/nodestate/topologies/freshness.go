// SPDX-License-Identifier: Apache-2.0

package topologies

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
)

// CheckGraph says whether a graph counts on a Node of this UID: Fits, or why it does not. n is
// what e.Node returned.
func (c *Cache) CheckGraph(e *Entry, n *usage.Node, node types.UID) placement.Reason {
	switch {
	case n == nil && e.fault.Load() != nil:
		return placement.UnreadableGraph
	case n == nil && !c.served.Load():
		return placement.NoDefinition
	case n == nil || n.NodeUID != node:
		return placement.CheckGraph(n, node, c.clock.Now())
	}
	return e.CheckExporter(n, c.clock.Now())
}

// CheckExporter says whether an exporter vouches for a graph: Fits, or why it does not count. n is
// what e.Node returned.
//
// The exporter of another node of the same name does not vouch for it: its Lease may be heard
// of while the watches of Nodes and objects are broken. Where the object as it is cannot be
// read, the exporter's Lease vouches for that and no longer for the last good graph, which then
// counts for the Lease's term, as it would if the exporter had fallen silent.
func (e *Entry) CheckExporter(n *usage.Node, now time.Time) placement.Reason {
	if reason := placement.CheckGraph(n, n.NodeUID, now); reason != placement.Fits {
		return reason
	}
	if f := e.fault.Load(); f != nil && !f.since.IsZero() && now.Sub(f.since) >= n.Exporter.Term() {
		return placement.UnreadableGraph
	}
	return placement.Fits
}

// Ended returns the nodes whose last good graph stopped counting since the last call, because
// the object that followed it cannot be read.
func (c *Cache) Ended() (nodes []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.Now()
	for name, e := range c.all() {
		n := e.Node()
		ended := n != nil && e.fault.Load() != nil && e.CheckExporter(n, now) == placement.UnreadableGraph
		if ended && !e.ended {
			nodes = append(nodes, name)
		}
		e.ended = ended
	}
	return nodes
}
