// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/pkg/podrequest"
)

// Config says how long gangs are waited for. It is one for the process: a gang may have members
// of several profiles. The zero value evicts nobody and keeps nothing.
type Config struct {
	ScheduleTimeout time.Duration // a gang that was never whole may be partly bound for so long; 0: for ever
	DrainAfter      time.Duration // a gang waits for so long before a domain is closed for it; 0: for ever
	KeepFreed       time.Duration // the place of a member that died is kept for so long; 0: not at all
	AnyModelAfter   time.Duration // members wait for the model of those that run for so long; 0: for ever
}

// Configure sets the Config before the first pod comes. Profiles that differ are an error.
func (g *Gangs) Configure(c Config) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.configured && c != g.config {
		return fmt.Errorf("scheduleTimeout, drainAfter, keepFreed and anyModelAfter must be equal in all profiles: have %+v and %+v", g.config, c)
	}
	g.config, g.configured = c, true
	return nil
}

// promiseKept is how long a gang of which no member runs waits for the model that it was promised. Kueue
// evicts a job whose pods have no node after some minutes; another model must come before that.
const promiseKept = time.Minute

// AnyModelFrom is from when on the members of a turn get GPUs of any model if the one that they are to
// have has no room: AnyModelAfter after they were complete where members run, and promiseKept after it
// where none does and a model was promised. It is zero if that never comes.
func (g *Gangs) AnyModelFrom(t *Turn) (at time.Time) {
	g.mu.Lock()
	after := g.config.AnyModelAfter
	g.mu.Unlock()
	promised := func(pod *v1.Pod) bool { return podrequest.PromisedModelOf(pod) != "" }
	if t.Fresh {
		after = promiseKept
	}
	if after <= 0 || len(t.Pods) == 0 || t.Fresh && !slices.ContainsFunc(t.Pods, promised) {
		return at
	}
	return t.Complete.Add(after)
}
