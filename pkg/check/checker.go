// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"time"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// DefaultGrace is how long annotations may differ from kubelet's record: the agent
// publishes what it reads within seconds and the controller corrects at once.
const DefaultGrace = 30 * time.Second

// Checker examines one cluster again and again, and remembers since when what is
// pending has been so. It is not safe for concurrent use.
type Checker struct {
	grace  time.Duration
	since  map[string]time.Time // finding -> World.Now when it was first seen
	now    time.Time            // of the last World
	tables *nvtopo.Registry
}

// NewChecker returns a Checker for which what has been pending for grace is a violation.
func NewChecker(grace time.Duration) *Checker {
	return &Checker{grace: grace, since: map[string]time.Time{}, tables: nvtopo.NewRegistry(nvtopo.DefaultWeights())}
}

// Examine is the function of that name with memory. Its clock is World.Now, and two
// Worlds tell that something lasted only if it is in both and in all between.
func (c *Checker) Examine(w *World) *Report {
	r := examine(w, c.tables)
	since := map[string]time.Time{}
	var pending []Violation
	for _, v := range r.Pending {
		// The message may speak of what changes meanwhile.
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

// Awaits reports whether something is pending that was so in the World of that moment
// and ever since: looking again will tell what becomes of it. It is not true for longer
// than the grace, whatever comes up meanwhile.
func (c *Checker) Awaits(moment time.Time) bool {
	for _, at := range c.since {
		if !at.After(moment) && c.now.Sub(at) < c.grace {
			return true
		}
	}
	return false
}
