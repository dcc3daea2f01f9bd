// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/usage"
)

// basis is what a pod's fit on a node rests on.
type basis uint8

const (
	nowhere  basis = iota // the node is refused
	onGraph               // what is used of the graph
	onNumber              // how many devices a graph that no longer counts has free
	onTrust               // the pod needs no graph there
)

// basis says what a pod's fit rests on where reason says whether the graph n counts. n may be
// nil.
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

// byCount says whether a pod that asks for nothing about links can be placed, by the number of
// GPUs, on a node whose graph no longer counts. Nothing is chosen, since the graph may be wrong.
// What it says to be used or broken is not counted as free. Reservations count too: while their
// binding is in doubt, the scheduler's own account of the node does not have them.
func (s *State) byCount(d *Demand, u *usage.Usage) placement.Reason {
	if reason := s.enforcement(d, u.Node); reason != placement.Fits {
		return reason
	}
	for _, r := range d.Resources {
		// Devices that came after the graph are in kubelet's own count.
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
