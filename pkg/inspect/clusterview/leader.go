// SPDX-License-Identifier: Apache-2.0

package clusterview

import (
	"github.com/nvtopo/nvtopo/internal/release"
	"github.com/nvtopo/nvtopo/pkg/inspect/clusterobjects"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/diagnosis"
)

// noScheduler says that no scheduler leads, and how to see why; empty while one leads, and where nothing tells.
func noScheduler(o *clusterobjects.Objects) string {
	ours := map[string]bool{release.Profile: true}
	if o.Published != nil {
		for i := range o.Published.Profiles {
			ours[o.Published.Profiles[i].Name] = true
		}
	}
	for i := range o.Pods { // who gives pods their GPUs is a scheduler of ours, whatever its name
		if p := &o.Pods[i]; p.Spec.NodeName != "" && p.Annotations[allocation.Key] != "" {
			ours[p.Spec.SchedulerName] = true
		}
	}
	e := &diagnosis.Election{
		Published: o.Published, Leases: o.Leases, Now: o.Now, Gone: o.Gone(),
		Placed: diagnosis.LastPlaced(o.Pods, func(name string) bool { return ours[name] }),
	}
	_, why, next := e.NoLeader()
	if why == "" {
		return ""
	}
	return why + "; " + next
}
