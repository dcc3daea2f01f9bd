// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"time"

	"github.com/nvtopo/nvtopo/pkg/usage"
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
	if r := CheckEnforcement(d.Request, d.Unenforced, u.Node, now); r != Fits && !found(r) {
		return
	}
	if r := Check(u, d.Request); r != Fits {
		found(r)
	}
}

// Never reports whether a pod that Judge refused for this reason would not fit either if all that is on the
// node had gone.
func Never(u *usage.Usage, d *Demand, basis Basis, reason Reason) bool {
	if basis == ByGraph && reason != Fits && reason != NotEnforced {
		return Check(u.Node.Empty, d.Request) != Fits
	}
	return reason != Fits && reason != FewGPUs
}
