// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"time"

	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
)

// Demand is a pod's request with the settings of its profile, as a node is judged by them.
type Demand struct {
	*podrequest.Request
	Unenforced Unenforced
	// AllowNoGraph lets GPU pods without hard demands onto nodes without a graph, and CountStale onto those
	// whose graph is stale; pods without GPUs are always let onto them.
	AllowNoGraph bool
	CountStale   bool
	WantCPUs     bool
	// Ahead judges a node as it will be in a moment, once its kubelet has released the devices of pods that
	// have just ended, and admitted the pods that have just been bound.
	Ahead bool
	// Yield, with Ahead, judges it as if gangs of a lower priority had given back the devices planned for
	// their members.
	Yield bool
}

// Basis is the data by which a pod's fit on a node is judged.
type Basis uint8

// The basis depends on the pod, and on whether the node's graph is valid.
const (
	Refused   Basis = iota // nothing: the node is refused
	ByGraph                // the usage of the graph's devices; see Check
	ByCount                // the number of free devices of a graph that is no longer valid; see checkCount
	Unchecked              // nothing: the pod needs no graph on the node
)

// Basis returns the data by which the pod's fit on n is judged; graph is Fits if the graph of n is valid.
// n may be nil.
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

// checkCount reports whether a pod without demands on links fits by the number of free GPUs on a node
// whose graph is no longer valid. No devices are chosen, since the graph may be wrong. Devices that the
// graph shows as used or broken are not free. Assumed allocations are used too: while the outcome of their
// binding is unknown, the scheduler's own account of the node does not have them.
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
