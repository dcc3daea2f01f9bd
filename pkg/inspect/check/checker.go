// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"time"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// DefaultGrace is how long annotations may differ from kubelet's record: the agent
// publishes its reading within seconds, and the controller corrects at once.
const DefaultGrace = 30 * time.Second

// Checker examines one cluster again and again, and remembers how long each pending
// finding has been there. It is not safe for concurrent use.
type Checker struct {
	grace  time.Duration
	since  map[string]time.Time // finding -> World.Now when it was first seen
	now    time.Time            // of the last World
	tables *nvtopo.Registry
}

// NewChecker returns a Checker that turns a finding that is pending for grace into a
// violation.
func NewChecker(grace time.Duration) *Checker {
	return &Checker{grace: grace, since: map[string]time.Time{}, tables: nvtopo.NewRegistry(nvtopo.DefaultWeights())}
}

// Examine is the function Examine with memory. Its clock is World.Now. A finding has
// lasted only if it is in the first World, in the last one, and in all between.
func (c *Checker) Examine(w *World) *Report {
	r := examine(w, c.tables)
	since := map[string]time.Time{}
	var pending []Violation
	for _, v := range r.Pending {
		// The message may name details that change from one World to the next.
		first := v
		first.Message = ""
		key := first.String()
		at, ok := c.since[key]
		if !ok {
			at = w.Now
		}
		since[key] = at
		if age := w.Now.Sub(at); age >= c.grace {
			v.Message += fmt.Sprintf(" (for %v)", age.Round(time.Second))
			r.Violations = append(r.Violations, v)
		} else {
			pending = append(pending, v)
		}
	}
	r.Pending, c.since, c.now = pending, since, w.Now
	r.sort()
	return r
}

// Awaits reports whether something has been pending since moment, and should be looked
// at again. It becomes false after the grace, even if new findings are pending then.
func (c *Checker) Awaits(moment time.Time) bool {
	for _, at := range c.since {
		if !at.After(moment) && c.now.Sub(at) < c.grace {
			return true
		}
	}
	return false
}
