// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/pkg/placement/diagnosis"
)

// leaderless is why no scheduler leads, and how to see more; why is empty while one leads, or where nothing
// tells. Then turn is what to do about a pod that waits for its turn. gone: nothing of nvtopo is in the cluster.
type leaderless struct {
	why, next, turn string
	gone            bool
}

// noLeader says why no scheduler leads that could place the pod. The Lease is that of the schedulers whose
// profiles are published, or of the shipped profile: others may have their own.
func (s *scene) noLeader(p *v1.Pod) leaderless {
	at := slices.IndexFunc(s.Profiles, func(x Profile) bool { return slices.Contains(x.SchedulerNames, p.Spec.SchedulerName) })
	if at < 0 || s.Profiles[at].Assumed && (s.Published != nil || p.Spec.SchedulerName != ShippedProfile().SchedulerNames[0]) {
		return leaderless{turn: nextSteps[WaitsForItsTurn]}
	}
	e := &diagnosis.Election{
		Published: s.Published, Leases: s.Leases, Now: s.Now, Gone: s.Gone(),
		Placed: diagnosis.LastPlaced(s.Pods, func(name string) bool { return slices.Contains(s.names, name) }),
	}
	of, why, next := e.NoLeader()
	return leaderless{why, next, of.TurnStep(), e.Gone}
}

// alsoNoLeader adds to the evidence of another cause that no scheduler leads, if none does.
func (e *Explanation) alsoNoLeader(l leaderless) {
	if l.why != "" && e.Cause != NoScheduler {
		e.Evidence = append(e.Evidence, l.why)
	}
}
