// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/gangrequest"
)

// turns are the members of a gang that are to be placed next, all or none, in the order of
// ranks: those that the gang needs to have its minimum, or one of those above it.
type turns struct {
	pods    []*v1.Pod
	follows bool // some members have their nodes
	needed  bool // they are needed for the minimum
	missing int  // how many more the gang needs, that cannot be scheduled or do not exist
}

// newTurns leaves out members that nobody may schedule, and those of other schedulers.
func newTurns(g *gangrequest.Gang, profiles map[string]bool) *turns {
	have := len(g.Members.Ended)
	t := &turns{}
	for _, pod := range g.Members.Live {
		switch {
		case pod.Spec.NodeName != "":
			have++
			t.follows = true
		case profiles[pod.Spec.SchedulerName] && len(pod.Spec.SchedulingGates) == 0:
			t.pods = append(t.pods, pod)
		}
	}
	if needed := g.Minimum - have; needed > 0 {
		t.needed = true
		t.missing = max(0, needed-len(t.pods))
		t.pods = t.pods[:min(needed, len(t.pods))]
	} else if len(t.pods) > 1 {
		t.pods = t.pods[:1]
	}
	return t
}

// elected is the member whose cycle plans for all; "" if there is none to place. Each turn it
// is another one.
func (t *turns) elected(turn int) types.UID {
	if len(t.pods) == 0 {
		return ""
	}
	return t.pods[turn%len(t.pods)].UID
}

// has reports whether the pod is one of those to place.
func (t *turns) has(uid types.UID) bool {
	for _, pod := range t.pods {
		if pod.UID == uid {
			return true
		}
	}
	return false
}
