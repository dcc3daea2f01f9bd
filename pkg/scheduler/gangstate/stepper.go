// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
)

// stepper takes the steps of gangs under the one lock, and carries out their effects without it.
type stepper struct {
	clock     clock.PassiveClock
	config    Config
	scheduler Scheduler
	leads     atomic.Bool // a cycle began here: this process leads, or did until it ends

	mu     sync.Mutex
	queue  *queue                  // guarded by mu, except for its signals
	holds  *nodeHolds              // guarded by mu
	strays map[types.UID]time.Time // members that are gone but may still wait at Permit until then; guarded by mu
}

func newStepper(clk clock.PassiveClock, config Config, scheduler Scheduler) *stepper {
	q := newQueue(clk, scheduler)
	return &stepper{
		clock: clk, config: config, scheduler: scheduler, queue: q, holds: newNodeHolds(clk, config, scheduler, q), strays: map[types.UID]time.Time{},
	}
}

// do takes a step, and carries out its effects without the lock. No attempt begins while another's
// effects are being carried out: reservations that are released must not be those of the next one.
func (s *stepper) do(step func() (*gang, effects)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x, e := step()
	if x == nil {
		return
	}
	if x.attempt != nil {
		x.attempt.stamp(s.clock.Now())
	}
	for e.any() {
		end, goOn := s.ends(x, &e), s.goesOn(x, &e)
		if e.over {
			s.close(x, e.done)
		}
		if !e.done { // else no place is released
			s.holds.showHeld(x)
		}
		x.busy++
		s.mu.Unlock()
		end()
		s.mu.Lock()
		x.busy--
		s.mu.Unlock()
		goOn()
		s.mu.Lock()
		e = effects{}
		if x.busy == 0 && x.closed {
			x.closed = false
			e.activate = s.queue.next(x)
		}
	}
	// Another step may have forgotten it meanwhile, and its name be another gang's.
	if s.queue.gangs[x.key] == x && len(x.pods) == 0 && x.busy == 0 && x.attempt == nil && x.claim == nil {
		delete(s.queue.gangs, x.key)
	}
	s.holds.endDrained()
	s.holds.showHeld(x)
}

// ends returns the function that ends places and waits. The caller holds s.mu; the function does not need
// it.
func (s *stepper) ends(x *gang, e *effects) func() {
	why := ""
	if x.attempt != nil {
		why = x.attempt.why.text
	}
	release, reject := e.release, e.reject
	return func() {
		if len(release) > 0 {
			s.scheduler.Release(release)
		}
		if len(reject) > 0 {
			s.scheduler.Reject(reject, why)
		}
	}
}

// goesOn returns the function that carries out the other effects. The caller holds s.mu; the function
// does not need it.
func (s *stepper) goesOn(x *gang, e *effects) func() {
	doer, commit, activate, key, does := s.scheduler, x.commit, x.find(e.activate), x.key, *e
	return func() {
		if len(activate) > 0 {
			doer.Activate(activate)
		}
		if does.commit {
			doer.Commit(commit)
		}
		if len(does.allow) > 0 {
			doer.Allow(does.allow)
		}
		if len(does.say) > 0 {
			doer.Say(key, does.say, does.why)
		}
		if does.settle != nil {
			doer.Settle(does.settle)
		}
		if does.done {
			doer.Whole(commit)
		}
	}
}

// close forgets an attempt that is over. The caller holds s.mu.
func (s *stepper) close(x *gang, done bool) {
	attempts.WithLabelValues(x.attempt.result(done, x.commit.Fresh)).Inc()
	if x.attempt.why.failed {
		s.holds.attemptFailed(x)
	}
	switch {
	case done:
		x.refusals.plans, x.pauses = 0, 0
		clear(x.refusals.nodes)
	case x.attempt.why.failed && x.waits == nil:
		pause := x.pause()
		if x.attempt.why.late {
			// Its places were held for so long in vain. A member that never comes must not keep
			// them from others most of the time.
			pause = max(pause, latePause*Timeout(len(x.attempt.members)), min(latePause*x.attempt.limit, maxAttempt))
		}
		x.waits = &Wait{Why: "gang: " + x.attempt.why.text, Until: s.clock.Now().Add(pause)}
	}
	x.attempt, x.commit, x.closed = nil, nil, true
	x.read = nil
}

// follow returns the effects of a member's change on the attempt.
func (s *stepper) follow(x *gang, old, pod *v1.Pod) effects {
	switch a := x.attempt; {
	case pod.Spec.NodeName != "":
		if a != nil && (old == nil || old.Spec.NodeName == "") {
			return a.bound(pod.UID)
		}
	case gangrequest.StandingOf(pod) != gangrequest.Live:
		if a != nil {
			return s.leave(x, pod.UID, "a member is gone")
		}
	case len(pod.Spec.SchedulingGates) > 0:
		if a != nil {
			return a.stopped(pod.UID, "a member may not be scheduled any more")
		}
	case old != nil && (a.collects() || x.claim != nil) && !sameWishes(old.Annotations, pod.Annotations):
		return x.giveUp("a member asks for something else now")
	}
	if old == nil || changed(old, pod) {
		s.queue.again(x)
	}
	return effects{activate: s.queue.next(x)}
}

// giveUp ends the places held for a gang of which no member has been allowed. The caller holds s.mu.
func (x *gang) giveUp(why string) effects {
	if x.attempt.collects() {
		return x.attempt.end(why)
	}
	x.waits = nil
	return x.endClaim()
}

// remove forgets a member. The caller holds s.mu.
func (s *stepper) remove(x *gang, uid types.UID, why string) (e effects) {
	s.queue.drop(x, uid)
	if x.attempt != nil {
		e = s.leave(x, uid, why)
	}
	if x.claim != nil && slices.ContainsFunc(x.claim.Places, func(l Located) bool { return l.Pod.UID == uid }) {
		x.waits = nil
		e = x.endClaim()
	}
	return e
}

// leave records that a member of the attempt is gone. It is no longer part of the attempt, but if it is
// in flight it may still come to wait at Permit, and would keep its GPUs until that wait is over: a pod
// joins the list of waiting pods only after its Permit has returned, so a single rejection may miss it.
// It is rejected each second, for as long as it could wait. The caller holds s.mu.
func (s *stepper) leave(x *gang, uid types.UID, why string) effects {
	if at := x.attempt.steps[uid]; x.attempt.has(uid) && (at == reserved || at == waiting) {
		s.strays[uid] = s.clock.Now().Add(x.attempt.limit + minAttempt)
	}
	return x.attempt.gone(uid, why)
}

// rejectStrays rejects members that are gone.
func (s *stepper) rejectStrays() {
	s.mu.Lock()
	uids, now := make([]types.UID, 0, len(s.strays)), s.clock.Now()
	for uid, until := range s.strays {
		if now.After(until) {
			delete(s.strays, uid)
			continue
		}
		uids = append(uids, uid)
	}
	s.mu.Unlock()
	if len(uids) > 0 {
		s.scheduler.Reject(uids, "gang: the member is gone")
	}
}
