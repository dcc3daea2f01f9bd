// SPDX-License-Identifier: Apache-2.0

package check

import "github.com/nvtopo/nvtopo/pkg/placement/diagnosis"

// checkLeader notes that no scheduler leads.
func (s *scene) checkLeader() {
	e := &diagnosis.Election{
		Published: s.w.Published, Leases: s.w.Leases, Now: s.w.Now, Gone: s.w.Gone(), Placed: diagnosis.LastPlaced(s.w.Pods, s.ours),
	}
	of, why, next := e.NoLeader()
	if why == "" {
		return
	}
	s.note(Violation{
		Invariant: NoScheduler, Objects: []Object{{Kind: "Lease", Namespace: of.Namespace, Name: of.Name}},
		Message: why + "; " + next,
	})
}
