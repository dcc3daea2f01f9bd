// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

// Ahead is the real clock plus an offset that a test adds. Its timers run unchanged: it is for code that
// reads the time of day and whose goroutines do not end with a bubble of testing/synctest.
type Ahead struct {
	clock.RealClock

	by atomic.Int64 // nanoseconds
}

// Add sets the clock ahead by a further duration.
func (a *Ahead) Add(d time.Duration) { a.by.Add(int64(d)) }

// Now implements clock.PassiveClock.
func (a *Ahead) Now() time.Time { return a.RealClock.Now().Add(time.Duration(a.by.Load())) }

// Since implements clock.PassiveClock.
func (a *Ahead) Since(t time.Time) time.Duration { return a.Now().Sub(t) }
