// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"sync/atomic"
	"time"

	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
)

const (
	// planShare: plans that find no places take one part in planShare of the scheduler's time, regardless of
	// how many gangs wait and how long a plan takes.
	planShare = 20
	// planBurst is how much of that time is saved up at most while no gang is tried.
	planBurst = 100 * time.Millisecond
	// maxDebt is how far plans may have exceeded their share before newly arrived gangs have to wait, of
	// which there are thousands after a restart.
	maxDebt = time.Second
	// tryWithin is how long the cycle of a gang that is tried may take to come before the next one is tried.
	tryWithin = 5 * time.Second
	// wakeEvery is the shortest time between the beginnings of two rounds in which waiting gangs are tried.
	wakeEvery = 200 * time.Millisecond
	// trailAfter is when a last round follows after the last change: the cycle of a gang may have begun
	// before the scheduler's own cache had the change.
	trailAfter = time.Second
	// anywayAfter is when a round comes without a change: capacity that is freed without an event (a claim,
	// a plugin's own state) must not keep a gang waiting for ever.
	anywayAfter = time.Minute
)

// pace keeps plans to their share of all time.
type pace struct {
	left time.Duration // time left for planning; negative: time used in advance
	at   time.Time     // when left was computed
}

// wait returns how long no plan may be made.
func (p *pace) wait(now time.Time) time.Duration {
	if p.at.IsZero() {
		p.left = planBurst
	} else {
		p.left = min(planBurst, p.left+now.Sub(p.at)/planShare)
	}
	p.at = now
	return max(0, (1-p.left)*planShare)
}

// rounds determines which of the gangs that wait for a change are tried next, and when. One is tried
// after the other, so that other pods come between two of them: a member comes to the queue with the time
// of its last cycle, and so before all pods made since.
type rounds struct {
	pace

	queue    []gangrequest.Key // still to be tried in the present round
	changed  bool              // something changed since it began
	trail    time.Time         // when a last round follows; zero: none does
	anyway   time.Time         // when a round comes without a change
	earliest time.Time         // when the next round may begin
	trying   gangrequest.Key   // the gang that was tried last
	until    time.Time         // until when its cycle is waited for; zero: it is not
	jumped   bool              // it was tried out of turn
	jumps    int               // number of such tries
}

// change records that some gangs may fit now.
func (r *rounds) change(now time.Time) { r.changed, r.trail = true, now.Add(trailAfter) }

// next returns the gang to try now. If ok is false, no gang is to be tried for the time wait, unless an
// event comes. waiting lists the gangs that wait for a change, in their order, and first those that do
// not wait for a round to end; tried reports whether the cycle of a gang that was tried has not ended
// yet.
func (r *rounds) next(now time.Time, waiting, first func() []gangrequest.Key, tried func(gangrequest.Key) bool) (key gangrequest.Key, wait time.Duration, ok bool) {
	if r.anyway.IsZero() {
		r.anyway = now.Add(anywayAfter)
	}
	if !r.trail.IsZero() && !now.Before(r.trail) {
		r.changed, r.trail = true, time.Time{}
	}
	r.changed = r.changed || !now.Before(r.anyway)
	pause := r.wait(now)
	if !r.until.IsZero() && now.Before(r.until) && tried(r.trying) {
		return key, r.until.Sub(now), false
	}
	r.until = time.Time{}
	if len(r.queue) == 0 {
		if at := r.begins(); now.Before(at) {
			return key, at.Sub(now), false
		}
		r.queue, r.changed = waiting(), false
		r.anyway, r.earliest = now.Add(anywayAfter), now.Add(wakeEvery)
		if len(r.queue) == 0 {
			return key, wakeEvery, false
		}
	}
	if pause > 0 {
		return key, pause, false
	}
	if keys := r.urgent(first); len(keys) > 0 {
		r.trying, r.jumped = keys[r.jumps%len(keys)], true
		r.jumps++
	} else {
		r.trying, r.queue, r.jumped = r.queue[0], r.queue[1:], false
	}
	r.until = now.Add(tryWithin)
	return r.trying, 0, true
}

// urgent returns gangs to try out of turn: every second try, while something has changed since the round
// began. The round goes on between them.
func (r *rounds) urgent(first func() []gangrequest.Key) []gangrequest.Key {
	if !r.changed || r.jumped {
		return nil
	}
	return first()
}

// begins returns when the next round begins, as far as is known.
func (r *rounds) begins() time.Time {
	switch {
	case r.changed:
		return r.earliest
	case !r.trail.IsZero() && r.trail.Before(r.anyway):
		return r.trail
	}
	return r.anyway
}

// signals notify RunRounds of events since its last pass.
type signals struct {
	wake     chan struct{} // something changed
	planned  chan struct{} // a plan ended
	planning atomic.Int64  // nanoseconds that plans took without finding places, since it was last read
	debt     atomic.Int64  // nanoseconds by which they exceeded their share; negative: less
}

func newSignals() *signals {
	return &signals{wake: make(chan struct{}, 1), planned: make(chan struct{}, 1)}
}

// Changed signals that some waiting gangs may fit now.
func (s *signals) Changed() { signal(s.wake) }

// PlanTook adds to the time that plans took without finding places.
func (s *signals) PlanTook(took time.Duration) {
	s.planning.Add(int64(took))
	signal(s.planned)
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// behind reports whether plans exceeded their share so far that new gangs have to wait.
func (s *signals) behind() bool { return time.Duration(s.debt.Load()) > maxDebt }
