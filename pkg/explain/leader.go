// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/pkg/diagnosis"
)

// noLeader says why no scheduler leads that could place the pod; empty while one does, or where nothing tells. The Lease
// is that of the schedulers whose profiles are published, or of the shipped profile: others may have their own.
func (s *scene) noLeader(p *v1.Pod) string {
	at := slices.IndexFunc(s.Profiles, func(x Profile) bool { return slices.Contains(x.SchedulerNames, p.Spec.SchedulerName) })
	if at < 0 || s.Profiles[at].Assumed && (s.Published != nil || p.Spec.SchedulerName != ShippedProfile().SchedulerNames[0]) {
		return ""
	}
	e := &diagnosis.Election{
		Published: s.Published, Leases: s.Leases, Now: s.Now,
		Placed: diagnosis.LastPlaced(s.Pods, func(name string) bool { return slices.Contains(s.schedulers, name) }),
	}
	_, why := e.NoLeader()
	return why
}

// alsoNoLeader adds to the evidence of another cause that no scheduler leads, if none does.
func (e *Explanation) alsoNoLeader(why string) {
	if why != "" && e.Cause != NoScheduler {
		e.Evidence = append(e.Evidence, why)
	}
}
