// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"time"

	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
)

// Verdict is the result of judging a pod on a node.
type Verdict struct {
	Reason Reason
	// Never: the pod would not fit even if everything on this node ended.
	Never bool
}

// Judge returns the first of Reasons that keep a pod off a node, or Fits. It does not allocate if the pod
// fits.
func Judge(u *usage.Usage, d *Demand, basis Basis, graph Reason, now time.Time) (first Reason) {
	Reasons(u, d, basis, graph, now, func(r Reason) bool {
		first = r
		return false
	})
	return first
}

// Reasons calls found with each reason that keeps a pod off a node until it returns false: whether the
// graph is valid (graph), whether an agent enforces the allocation, and whether enough devices are free.
// basis follows from graph and the pod; u is used by ByGraph and ByCount. With Refused, a usage, which may
// be nil, adds the reasons that would remain if the graph were valid.
func Reasons(u *usage.Usage, d *Demand, basis Basis, graph Reason, now time.Time, found func(Reason) bool) {
	switch basis {
	case Unchecked:
		return
	case ByCount:
		if r := checkCount(u, d, now); r != Fits {
			found(r)
		}
		return
	case Refused:
		if !found(graph) || u == nil {
			return
		}
	case ByGraph:
	}
	if r := checkEnforcement(d.Request, d.Unenforced, u.Node, now); r != Fits && !found(r) {
		return
	}
	if r := Check(u, d.Request); r != Fits {
		found(r)
	}
}

// CheckNode returns the reasons of Judge that need no usage: that the graph is not valid, as given by
// graph, or that no agent enforces the allocation.
func CheckNode(d *Demand, n *usage.Node, graph Reason, now time.Time) Reason {
	if graph != Fits {
		return graph
	}
	return checkEnforcement(d.Request, d.Unenforced, n, now)
}

// JudgePlanned is Judge for a pod that is to get an allocation that was chosen for it on this node before.
func JudgePlanned(a *allocation.Allocation, d *Demand, n *usage.Node, graph Reason, now time.Time) Reason {
	if reason := CheckNode(d, n, graph, now); reason != Fits {
		return reason
	}
	for _, c := range a.Containers {
		accel := n.Accel(c.Resource)
		if accel == nil {
			return PlanBroken
		}
		if set, missing := accel.Graph.Positions(c.GPUs); len(missing) > 0 || set&^accel.Healthy != 0 {
			return PlanBroken
		}
	}
	return Fits
}

// Never reports whether a pod that Judge refused for this reason would not fit even if the node were
// empty.
func Never(u *usage.Usage, d *Demand, basis Basis, reason Reason) bool {
	if basis == ByGraph && reason != Fits && reason != NotEnforced {
		return Check(u.Node.Empty, d.Request) != Fits
	}
	return reason != Fits && reason != FewGPUs
}
