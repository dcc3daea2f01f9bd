// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/usage"
)

// Standing says whether a node's graph counts now: Fits, or why it does not.
func (s *State) Standing(node *v1.Node) placement.Reason {
	x := s.cells.get(node.Name)
	var n *usage.Node
	if x != nil {
		n = x.topology.Node()
	}
	return s.standing(x, n, node.UID)
}

// standing says whether a node's graph counts: Fits, or why it does not.
func (s *State) standing(x *cell, n *usage.Node, node types.UID) placement.Reason {
	switch {
	case n == nil && x != nil && x.topology.Fault() != "":
		return placement.UnreadableGraph
	case n == nil && !s.served.Load():
		return placement.NoDefinition
	case n == nil:
		return placement.NoGraph
	case n.NodeUID != node:
		return placement.NodeReplaced
	}
	return x.topology.Vouched(n, s.clock.Now())
}

// Vouched says whether somebody stands for the graph now. The exporter of another node
// of the same name does not: its Lease may be heard of while the watches of Nodes and
// graphs are broken. Where the object has come to say what cannot be read, the
// exporter's Lease stands for that and no longer for the last good graph, which then
// counts for the Lease's term, as it would if the exporter had fallen silent.
func (e *topologyEntry) Vouched(n *usage.Node, now time.Time) placement.Reason {
	if !n.Exporter.Fresh(now) {
		return placement.StaleGraph
	}
	if !n.Exporter.Of(n.NodeUID) {
		return placement.NodeReplaced
	}
	if f := e.fault.Load(); f != nil && !f.since.IsZero() && now.Sub(f.since) >= n.Exporter.Term() {
		return placement.UnreadableGraph
	}
	return placement.Fits
}

// basis is what a pod's fit on a node rests on.
type basis uint8

const (
	nowhere  basis = iota // the node is refused
	onGraph               // what is used of the graph
	onNumber              // how many devices a graph that no longer counts has free
	onTrust               // the pod needs no graph there
)

// basis says what a pod's fit rests on where the graph n, which may be nil, stands like that.
func (d *Demand) basis(n *usage.Node, reason placement.Reason) basis {
	switch {
	case reason == placement.Fits:
		return onGraph
	case d.NeedsGraph():
		return nowhere
	case !d.HasGPUs():
		return onTrust
	}
	stale := reason == placement.StaleGraph || reason == placement.UnreadableGraph && n != nil
	switch {
	case stale && (d.NoTopology || d.CountStale):
		return onNumber
	case !stale && (d.NoTopology || d.AllowNoGraph):
		return onTrust
	}
	return nowhere
}

// byCount says whether a pod that asks for nothing about links can be placed on a node
// whose graph no longer counts, by the number of GPUs: nothing is chosen, since the
// graph may be wrong, but what it says to be used or broken is not counted as free.
// Claims count too, which the scheduler's own account of the node does not have
// while their binding is in doubt.
func (s *State) byCount(d *Demand, u *usage.Usage) placement.Reason {
	if reason := s.enforcement(d, u.Node); reason != placement.Fits {
		return reason
	}
	for _, r := range d.Resources {
		// Of devices that came after the graph kubelet's own count tells.
		i := u.AccelIndex(r.Name)
		if i < 0 {
			continue
		}
		free := u.FreeAt(i)
		if !d.Single() {
			free &^= u.Node.Accels[i].Degraded
		}
		if free.Len()-u.Counted[i] < r.Count {
			return placement.FewGPUs
		}
	}
	return placement.Fits
}
