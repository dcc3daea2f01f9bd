// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"cmp"
	"slices"
	"time"

	"github.com/nvtopo/nvtopo/pkg/diagnosis"
)

// String is the phase's name in a diagnosis.
func (p phase) String() string {
	switch p {
	case collecting:
		return "collecting"
	case committing:
		return "committing"
	case committed:
		return "committed"
	case ending:
		return "ending"
	default:
		return "none"
	}
}

// stamp notes when the attempt came to its phase.
func (a *attempt) stamp(now time.Time) {
	if a.stamped != a.phase {
		a.stamped, a.since = a.phase, now
	}
}

// Diagnose tells what is known of each gang, by name.
func (g *Gangs) Diagnose() []diagnosis.Gang {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make([]diagnosis.Gang, 0, len(g.queue.gangs))
	for key, x := range g.queue.gangs {
		d := diagnosis.Gang{Gang: key.String(), Pods: len(x.pods)}
		if w := x.waits; w != nil {
			if d.Waits = w.Why; !w.Until.IsZero() {
				d.Until = new(w.Until.UTC())
			}
		} else if x.attempt == nil && (x.read != nil && !x.stale || x.count() < x.counted) { // nothing is read again for it
			d.Waits = g.queue.missing(x)
		}
		if x.claim != nil {
			for _, l := range x.claim.Places {
				d.Awaiting = append(d.Awaiting, l.Pod.UID)
			}
		}
		if a := x.attempt; a != nil {
			d.Attempt = &diagnosis.GangAttempt{
				Phase: a.phase.String(), Since: a.since.UTC(), Why: a.why, Held: a.in(held), Reserved: a.in(reserved), Waiting: a.in(waiting),
			}
		}
		out = append(out, d)
	}
	slices.SortFunc(out, func(a, b diagnosis.Gang) int { return cmp.Compare(a.Gang, b.Gang) })
	return out
}
