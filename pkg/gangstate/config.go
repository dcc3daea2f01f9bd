// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"fmt"
	"time"
)

// Config says how long gangs are waited for. It is one for the process: a gang may have members
// of several profiles. The zero value evicts nobody and keeps nothing.
type Config struct {
	ScheduleTimeout time.Duration // a gang that was never whole may be partly bound for so long; 0: for ever
	DrainAfter      time.Duration // a gang waits for so long before a domain is closed for it; 0: for ever
	KeepFreed       time.Duration // the place of a member that died is kept for so long; 0: not at all
	AnyModelAfter   time.Duration // a member of a gang that runs waits for its model for so long; 0: for ever
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

// AnyModelFrom is from when on the members of a turn get GPUs of any model if that of the others has
// no room: they are to join members that run, and the youngest was made so long ago. It is zero if
// that never comes.
func (g *Gangs) AnyModelFrom(t *Turn) (at time.Time) {
	g.mu.Lock()
	after := g.config.AnyModelAfter
	g.mu.Unlock()
	if after <= 0 || t.Fresh || len(t.Pods) == 0 {
		return at
	}
	youngest := t.Pods[0].CreationTimestamp
	for _, pod := range t.Pods {
		if youngest.Before(&pod.CreationTimestamp) {
			youngest = pod.CreationTimestamp
		}
	}
	return youngest.Add(after)
}
