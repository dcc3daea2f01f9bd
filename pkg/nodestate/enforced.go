// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"time"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// Enforced reports whether a node's agent is heard of now: only then is what it
// published about kubelet's record current.
func (s *State) Enforced(node string) bool {
	n := s.Node(node)
	return n != nil && n.enforced(s.clock.Now())
}

// enforced reports whether this very node's agent is heard of: that of an earlier node
// of the name knows nothing of this one's kubelet.
func (n *Node) enforced(now time.Time) bool { return n.agent.fresh(now) && n.agent.of(n.NodeUID) }

// Unmet names the demand of the pod's own that a set of GPUs does not meet, or is
// empty: the links, the NUMA policy, one model, or models and memory.
func (r *Request) Unmet(a *Accel, set nvtopo.Mask) string {
	if set&^r.suitable(a.Graph) != 0 {
		return "gpu-model or min-gpu-memory"
	}
	if short := a.Tables.Shortfall(set, set, set.Len(), r.Constraint); short != nvtopo.ShortNone {
		return short.String()
	}
	return ""
}
