// SPDX-License-Identifier: Apache-2.0

package check

import (
	"time"

	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/diagnosis"
)

// DefaultProfile is the scheduler name of the shipped configuration.
const DefaultProfile = diagnosis.ShippedProfile

// DefaultLag is how long a change may take to reach a scheduler. A later decision that
// ignores the change counts as wrong.
const DefaultLag = 15 * time.Second

// World is what is examined: a cluster at one moment.
type World struct {
	Now        time.Time
	Pods       []v1.Pod
	Nodes      []v1.Node
	Topologies []v1alpha1.NodeGPUTopology
	Leases     []coordinationv1.Lease // Leases of exporters, agents and the scheduler
	// PodGroups are those of scheduler-plugins, and ClusterTopology the one that counts, nil
	// if there is none. Gangs are judged by both.
	PodGroups       []schedulingv1alpha1.PodGroup
	ClusterTopology *v1alpha1.ClusterTopology
	// Budgets are not examined, and Read does not read them: they are for whoever shows a cluster
	// from saved objects.
	Budgets []policyv1.PodDisruptionBudget
	// Schedulers are the states of scheduler processes; may be empty.
	Schedulers []diagnosis.State
	// Published is what the scheduler that leads has published, nil if nothing. Read does not read it.
	Published *diagnosis.Profiles
	// Profiles are the schedulers whose GPU pods must have an allocation, in addition
	// to those that Schedulers name. If both are empty, it is the shipped one. If a
	// profile names no resources, they are not known.
	Profiles []diagnosis.Profile
	// ScheduleTimeout is how long a gang that was never whole may be partly bound: for ever if it
	// is 0, gangrequest.DefaultScheduleTimeout if it is nil.
	ScheduleTimeout *time.Duration
	// Lag is DefaultLag when 0.
	Lag time.Duration
}

// profiles returns the scheduler names that are ours, with what is known of them.
func (w *World) profiles() map[string]diagnosis.Profile {
	out := map[string]diagnosis.Profile{}
	for _, d := range w.Schedulers {
		for _, p := range d.Profiles {
			out[p.Name] = p
		}
	}
	for _, p := range w.Profiles {
		if _, ok := out[p.Name]; ok && len(p.Resources) == 0 {
			continue // this entry has only the name, and its scheduler's state has more
		}
		out[p.Name] = p
	}
	if len(out) == 0 {
		out[DefaultProfile] = diagnosis.Profile{Name: DefaultProfile}
	}
	return out
}

func (w *World) lag() time.Duration {
	if w.Lag > 0 {
		return w.Lag
	}
	return DefaultLag
}
