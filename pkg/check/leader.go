// SPDX-License-Identifier: Apache-2.0

package check

import (
	"slices"

	"github.com/nvtopo/nvtopo/pkg/diagnosis"
)

// checkLeader notes that no scheduler leads.
func (s *scene) checkLeader() {
	ours := func(name string) bool {
		_, known := s.profiles[name]
		return known || s.w.Published != nil && slices.ContainsFunc(s.w.Published.Profiles, func(p diagnosis.Profile) bool { return p.Name == name })
	}
	e := &diagnosis.Election{
		Published: s.w.Published, Leases: s.w.Leases, Now: s.w.Now, Placed: diagnosis.LastPlaced(s.w.Pods, ours),
	}
	of, why := e.NoLeader()
	if why == "" {
		return
	}
	s.note(Violation{
		Invariant: NoScheduler, Objects: []Object{{Kind: "Lease", Namespace: of.Namespace, Name: of.Name}},
		Message: why + "; " + of.NextStep(),
	})
}
