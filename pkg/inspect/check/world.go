// SPDX-License-Identifier: Apache-2.0

package check

import (
	"time"

	"github.com/nvtopo/nvtopo/internal/release"
	"github.com/nvtopo/nvtopo/pkg/inspect/clusterobjects"
	"github.com/nvtopo/nvtopo/pkg/placement/diagnosis"
)

// DefaultProfile is the scheduler name of the shipped configuration.
const DefaultProfile = release.Profile

// DefaultLag is how long a change may take to reach a scheduler. A later decision that
// ignores the change counts as wrong.
const DefaultLag = 15 * time.Second

// World is what is examined: a cluster at one moment, as Read or files have it.
type World struct {
	clusterobjects.Objects

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
