// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"cmp"
	"slices"

	"github.com/nvtopo/nvtopo/pkg/placement/diagnosis"
)

// Diagnosis is the part of Gangs that reports them to people.
type Diagnosis struct{ *stepper }

// Diagnose returns the known state of each gang, by name.
func (d Diagnosis) Diagnose() []diagnosis.Gang {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make([]diagnosis.Gang, 0, len(d.queue.gangs))
	for key, x := range d.queue.gangs {
		told := diagnosis.Gang{Gang: key.String(), Pods: len(x.pods)}
		if w := x.waits; w != nil {
			if told.Waits = w.Why; !w.Until.IsZero() {
				told.Until = new(w.Until.UTC())
			}
		} else if x.attempt == nil && (x.read != nil && !x.stale || x.count() < x.counted) { // this must not cause a gang to be read again
			told.Waits = d.queue.missing(x)
		}
		if x.claim != nil {
			for _, l := range x.claim.Places {
				told.Awaiting = append(told.Awaiting, l.Pod.UID)
			}
		}
		if a := x.attempt; a != nil {
			told.Attempt = &diagnosis.GangAttempt{
				Phase: a.phase.String(), Since: a.since.UTC(), Why: a.why.text, Held: a.in(held), Reserved: a.in(reserved), Waiting: a.in(waiting),
			}
		}
		out = append(out, told)
	}
	slices.SortFunc(out, func(a, b diagnosis.Gang) int { return cmp.Compare(a.Gang, b.Gang) })
	return out
}
