// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"time"

	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
)

// Demand is what a pod asks, with what its profile adds when a node is judged.
type Demand struct {
	*podrequest.Request
	Unenforced Unenforced
	// AllowNoGraph lets GPU pods without hard demands onto nodes without a graph, and
	// CountStale onto those whose graph is stale; pods without GPUs always may.
	AllowNoGraph bool
	CountStale   bool
	WantCPUs     bool
	// Ahead judges a node as it will be in a moment, once its kubelet has released the
	// devices of pods that have just gone, and admitted those that have just come.
	Ahead bool
	// Yield, with Ahead, judges it as if gangs of a lower priority had given back what is planned
	// for their members.
	Yield bool
}

// Basis is what a pod's fit on a node is judged by.
type Basis uint8

// What a node is judged by depends on the pod, and on whether the node's graph counts.
const (
	Refused   Basis = iota // nothing: the node is refused
	ByGraph                // what is used of the graph; see Check
	ByCount                // how many devices a graph that no longer counts has free; see checkCount
	Unchecked              // nothing: the pod needs no graph there
)

// Basis says what the pod's fit is judged by where graph says whether the graph of n counts. n
// may be nil.
func (d *Demand) Basis(n *usage.Node, graph Reason) Basis {
	switch {
	case graph == Fits:
		return ByGraph
	case d.NeedsGraph():
		return Refused
	case !d.HasGPUs():
		return Unchecked
	}
	stale := graph == StaleGraph || graph == UnreadableGraph && n != nil
	switch {
	case stale && (d.NoTopology || d.CountStale):
		return ByCount
	case !stale && (d.NoTopology || d.AllowNoGraph):
		return Unchecked
	}
	return Refused
}

// checkCount says whether a pod that asks for nothing about links can be placed, by the number of
// GPUs, on a node whose graph no longer counts. Nothing is chosen, since the graph may be wrong.
// What it says to be used or broken is not counted as free. Reservations count too: while their
// binding is in doubt, the scheduler's own account of the node does not have them.
func checkCount(u *usage.Usage, d *Demand, now time.Time) Reason {
	if reason := checkEnforcement(d.Request, d.Unenforced, u.Node, now); reason != Fits {
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
			return FewGPUs
		}
	}
	return Fits
}
