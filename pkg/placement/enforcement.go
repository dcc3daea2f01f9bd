// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"fmt"
	"time"

	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
)

// Unenforced selects the GPU pods that may run on a node without an agent, where the chosen devices are
// not enforced.
type Unenforced uint8

// The values of the argument unenforcedNodes.
const (
	AllowUnenforced Unenforced = iota
	WholeNodeOnly
	RefuseUnenforced
)

// ParseUnenforced reads the argument unenforcedNodes.
func ParseUnenforced(s string) (Unenforced, error) {
	switch s {
	case "Allow":
		return AllowUnenforced, nil
	case "WholeNodeOnly":
		return WholeNodeOnly, nil
	case "Refuse":
		return RefuseUnenforced, nil
	}
	return 0, fmt.Errorf("unknown treatment of unenforced nodes %q, want Allow, WholeNodeOnly or Refuse", s)
}

// checkEnforcement refuses a node without an agent to pods that may not run there.
func checkEnforcement(r *podrequest.Request, may Unenforced, n *usage.Node, now time.Time) Reason {
	if !r.HasGPUs() || n.Enforced(now) {
		return Fits
	}
	if may == RefuseUnenforced {
		return NotEnforced
	}
	if may != WholeNodeOnly && !r.TrustsOutput {
		return Fits
	}
	// The whole node leaves kubelet nothing to choose.
	for _, res := range r.Resources {
		if a := n.Accel(res.Name); a == nil || res.Count != a.Graph.Len() {
			return NotEnforced
		}
	}
	return Fits
}
