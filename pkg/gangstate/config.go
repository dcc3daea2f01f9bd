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
}

// Configure sets the Config before the first pod comes. Profiles that differ are an error.
func (g *Gangs) Configure(c Config) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.configured && c != g.config {
		return fmt.Errorf("scheduleTimeout, drainAfter and keepFreed must be equal in all profiles: have %+v and %+v", g.config, c)
	}
	g.config, g.configured = c, true
	return nil
}
