// SPDX-License-Identifier: Apache-2.0

package topologies

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
)

// CheckGraph returns Fits if a graph is valid on a Node of this UID, else the reason. n is the result of
// e.Node.
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

// CheckExporter returns Fits if an exporter vouches for a graph, else the reason. n is the result of
// e.Node.
//
// The exporter of another node of the same name does not vouch for it: its Lease may be seen while the
// watches of Nodes and objects are broken. If the present object cannot be read, the exporter's Lease
// vouches for that object and no longer for the last good graph, which is then valid for the Lease's
// term, as it would be if the exporter had stopped.
func (e *Entry) CheckExporter(n *usage.Node, now time.Time) placement.Reason {
	if reason := placement.CheckGraph(n, n.NodeUID, now); reason != placement.Fits {
		return reason
	}
	if f := e.fault.Load(); f != nil && !f.since.IsZero() && now.Sub(f.since) >= n.Exporter.Term() {
		return placement.UnreadableGraph
	}
	return placement.Fits
}

// Ended returns the nodes whose last good graph became invalid since the last call, because the object
// that followed it cannot be read.
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
