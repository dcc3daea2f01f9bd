// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"time"

	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
)

// Verdict is a node's answer to a pod.
type Verdict struct {
	Reason Reason
	// Never: nothing that could end on this node would make the pod fit.
	Never bool
}

// Judge returns what keeps a pod off a node, the first of Reasons; Fits if nothing does, and then it does
// not allocate.
func Judge(u *usage.Usage, d *Demand, basis Basis, graph Reason, now time.Time) (first Reason) {
	Reasons(u, d, basis, graph, now, func(r Reason) bool {
		first = r
		return false
	})
	return first
}

// Reasons calls found with all that keeps a pod off a node until it returns false: whether the graph
// counts, whether an agent makes the choice real, and whether what is used leaves enough. graph says whether
// the graph counts, and basis what follows for the pod; u is used by ByGraph and ByCount. Of a node that is
// Refused a usage, which may be nil, says what else there is, as if the graph counted.
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

// CheckNode is what of Judge needs no usage: whether the graph counts, as graph says, and whether an agent
// makes the choice real.
func CheckNode(d *Demand, n *usage.Node, graph Reason, now time.Time) Reason {
	if graph != Fits {
		return graph
	}
	return checkEnforcement(d.Request, d.Unenforced, n, now)
}

// JudgePlanned is Judge for a pod that is to get an allocation which was chosen for it on this node before.
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

// Never reports whether a pod that Judge refused for this reason would not fit either if all that is on the
// node had gone.
func Never(u *usage.Usage, d *Demand, basis Basis, reason Reason) bool {
	if basis == ByGraph && reason != Fits && reason != NotEnforced {
		return Check(u.Node.Empty, d.Request) != Fits
	}
	return reason != Fits && reason != FewGPUs
}
