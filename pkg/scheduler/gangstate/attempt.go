// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"slices"
	"time"

	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
)

// phase is the state of an attempt to place a gang:
//
//	hold ──► collecting ──the last has come──► committing ──written──► committed ──the last is bound──► none
//	             │ one failed, is gone, or is late  │                      one failed: it comes again alone
//	             ▼                                  ▼
//	           ending ──no member is in flight any more──► none
//
// An attempt in phase none may be forgotten. No other attempt of the gang begins before.
type phase uint8

// The phases of an attempt.
const (
	none phase = iota
	collecting
	committing
	committed
	ending
)

// step is how far one member has come in its gang's attempt.
type step uint8

// The steps of a member. 0 is for a pod that is no member.
const (
	held     step = iota + 1 // it has its reservation, and its cycle is to come
	reserved                 // its Reserve was called: Unreserve or PostBind will be, too
	waiting                  // its Permit was called
	through                  // bound, gone, or unreserved after the attempt's end
)

// attempt is one attempt to place members of a gang, all or none. It has no side effects: each method
// takes an event and returns the effects to be carried out.
type attempt struct {
	phase    phase
	stamped  phase // the phase that since belongs to
	since    time.Time
	members  []types.UID // in the order of ranks
	steps    map[types.UID]step
	at       [through + 1]int // how many members are at each step
	deadline time.Time
	limit    time.Duration      // between hold and deadline
	why      reason             // reason for its end
	keep     time.Duration      // how long a member whose binding failed keeps its place
	leaving  map[types.UID]bool // in flight, and may not be scheduled any more
	lost     bool               // a member of a committed attempt was given up, or is gone, before it was bound
}

// reason is why an attempt ended.
type reason struct {
	text   string
	failed bool // it may come again at once
	late   bool // not all members came in time
}

// Commit is an attempt for which all members have come to Permit.
type Commit struct {
	Key     gangrequest.Key
	Group   *schedulingv1alpha1.PodGroup // nil if the gang has none
	Members []types.UID
	Fresh   bool  // no member was bound before: the gang may be rolled back until it is whole
	Attempt int64 // the number that Doer.Commit wrote on the group; 0 if it wrote nothing
	Answer  *Answer
}

// maxKeep is how long at most a member of a committed attempt keeps its place after its binding failed.
const maxKeep = 5 * time.Minute

// effects are to be carried out after a step, in this order, without any lock.
type effects struct {
	release  []types.UID // their reservations end
	reject   []types.UID // if they wait at Permit, they are rejected
	activate []types.UID // their cycles are to come now
	commit   bool        // write that the gang is not whole, then call written
	allow    []types.UID // they are allowed at Permit
	say      []*v1.Pod   // they report why the gang does not go on
	why      string
	settle   *Settlement // the gang is to be settled
	over     bool        // no member is in flight any more; another attempt may begin
	done     bool        // over, and the remaining members have been bound
}

// hold begins the attempt: the cycle of first has made the reservations of all members.
func hold(members []types.UID, first types.UID, deadline time.Time) *attempt {
	a := &attempt{phase: collecting, members: members, steps: make(map[types.UID]step, len(members)), deadline: deadline, keep: maxKeep}
	for _, uid := range members {
		a.steps[uid] = held
	}
	a.at[held] = len(members)
	a.put(first, reserved)
	return a
}

func (a *attempt) put(uid types.UID, s step) {
	a.at[a.steps[uid]]--
	a.at[s]++
	a.steps[uid] = s
}

// live reports whether the attempt may still succeed.
func (a *attempt) live() bool {
	return a != nil && (a.phase == collecting || a.phase == committing || a.phase == committed)
}

// collects reports whether the attempt is in progress and has allowed no member yet.
func (a *attempt) collects() bool {
	return a != nil && (a.phase == collecting || a.phase == committing)
}

// has reports whether the pod is a member for which the attempt is not over.
func (a *attempt) has(uid types.UID) bool {
	if a == nil || a.phase == none {
		return false
	}
	s, ok := a.steps[uid]
	return ok && s != through
}

// begun records a member's Reserve. It reports whether the member may go on.
func (a *attempt) begun(uid types.UID) bool {
	if !a.live() || !a.has(uid) || a.steps[uid] != held {
		return false
	}
	a.put(uid, reserved)
	return true
}

// answer is the result of a member's Permit.
type answer uint8

const (
	refuse answer = iota
	wait
	pass
)

// permitted records a member's Permit. The first member to come activates the others.
func (a *attempt) permitted(uid types.UID) (e effects, is answer) {
	if !a.live() || a.steps[uid] != reserved {
		return e, refuse
	}
	a.put(uid, waiting)
	if a.phase == committed {
		return e, pass // it comes again alone
	}
	if a.at[held]+a.at[reserved] == 0 {
		a.phase = committing
		e.commit = true
	} else if a.at[waiting] == 1 {
		e.activate = a.in(held)
	}
	return e, wait
}

// written records the end of the write before the first member is allowed.
func (a *attempt) written(err error) (e effects) {
	switch {
	case a.phase != committing:
		return e
	case err != nil:
		return a.fail("the gang's state cannot be written: " + err.Error())
	}
	a.phase, a.deadline = committed, time.Time{}
	e.allow = a.in(waiting)
	return e
}

// unreserved records that a member's cycle ended without success.
func (a *attempt) unreserved(uid types.UID, why string) (e effects) {
	if s, ok := a.steps[uid]; !ok || s == through {
		return e
	}
	switch a.phase {
	case collecting, committing: // a held one was refused by the Reserve of an earlier plugin
		a.put(uid, through)
		e = a.fail(why)
		e.release = append(e.release, uid)
		return e
	case committed:
		if a.leaving[uid] {
			a.put(uid, through)
			a.lost = true
			e.release = []types.UID{uid}
			return a.settle(e)
		}
		a.put(uid, held)
		e.activate = []types.UID{uid}
		return e
	case ending:
		a.put(uid, through)
		e.release = []types.UID{uid}
		return a.settle(e)
	default:
		return e
	}
}

// stopped records that a member may not be scheduled any more. It may come back as the same pod: if it is
// in flight, its cycle has to end first, or that end would be taken for one in the next attempt.
func (a *attempt) stopped(uid types.UID, why string) (e effects) {
	if s := a.steps[uid]; !a.has(uid) || s != reserved && s != waiting {
		return a.gone(uid, why)
	}
	if a.leaving == nil {
		a.leaving = map[types.UID]bool{}
	}
	a.leaving[uid] = true
	if a.collects() {
		return a.end(why)
	}
	return e
}

// gone records that a member will never be bound: it was deleted, or has ended.
func (a *attempt) gone(uid types.UID, why string) (e effects) {
	s, ok := a.steps[uid]
	if !ok || s == through || a.phase == none {
		return e
	}
	a.put(uid, through)
	if a.collects() {
		e = a.end(why)
	} else {
		a.lost = a.lost || a.phase == committed
		e = a.settle(e)
	}
	e.release = append(e.release, uid)
	e.reject = append(e.reject, uid)
	return e
}

// givenUp records that a member of a committed attempt cannot have its place. It is placed again, by an
// attempt of its own.
func (a *attempt) givenUp(uid types.UID) (e effects) {
	if a == nil || a.phase != committed || a.steps[uid] != held {
		return e
	}
	a.put(uid, through)
	a.lost = true
	e.release = []types.UID{uid}
	return a.settle(e)
}

// bound records that a member is bound.
func (a *attempt) bound(uid types.UID) (e effects) {
	if s, ok := a.steps[uid]; !ok || s == through || a.phase == none {
		return e
	}
	a.put(uid, through)
	if a.collects() {
		// By another scheduler, or by an earlier leader: the rest is planned around it.
		return a.end("a member was bound by somebody else")
	}
	return a.settle(e)
}

// tick handles the times of the attempt; it is called every second.
func (a *attempt) tick(now time.Time) (e effects) {
	switch a.phase {
	case collecting, committing:
		if now.After(a.deadline) {
			a.why.late = true
			return a.fail("not all members came in time")
		}
		e.activate = a.in(held) // one may have been in flight when it was activated
	case ending:
		// A pod joins the list of waiting pods only after its Permit has returned.
		e.reject = slices.Concat(a.in(reserved), a.in(waiting))
	case committed:
		return a.retry(now)
	default:
	}
	return e
}

// retry activates the members of a committed attempt whose binding failed. After a time they are given
// up, so that other places can be sought for the gang.
func (a *attempt) retry(now time.Time) (e effects) {
	left := a.in(held)
	switch {
	case len(left) == 0:
		a.deadline = time.Time{}
		return e
	case a.deadline.IsZero():
		a.deadline = now.Add(a.keep)
	case now.After(a.deadline):
		for _, uid := range left {
			a.put(uid, through)
		}
		a.lost = true
		e.release = left
		return a.settle(e)
	}
	e.activate = left
	return e
}

// fail is end for a reason that may also apply to the next attempt.
func (a *attempt) fail(why string) effects {
	a.why.failed = true
	return a.end(why)
}

// end ends an attempt that is not committed.
func (a *attempt) end(why string) (e effects) {
	a.phase, a.why.text = ending, why
	for _, uid := range a.members {
		switch a.steps[uid] {
		case held:
			a.put(uid, through)
			e.release = append(e.release, uid)
		case reserved, waiting:
			e.reject = append(e.reject, uid)
		case through:
		}
	}
	return a.settle(e)
}

// settle ends an attempt without members in flight.
func (a *attempt) settle(e effects) effects {
	if a.at[through] == len(a.members) {
		e.done, e.over = a.phase == committed && !a.lost, true
		a.phase = none
	}
	return e
}

// any reports whether there is any effect.
func (e *effects) any() bool {
	return e.commit || e.over || e.settle != nil || len(e.release)+len(e.reject)+len(e.activate)+len(e.allow)+len(e.say) > 0
}

// in returns the members at a step, in the order of ranks.
func (a *attempt) in(s step) (out []types.UID) {
	if a.at[s] == 0 {
		return nil
	}
	for _, uid := range a.members {
		if a.steps[uid] == s {
			out = append(out, uid)
		}
	}
	return out
}

// result returns the outcome of an attempt that is over.
func (a *attempt) result(done, fresh bool) string {
	switch {
	case done && fresh:
		return "placed"
	case done:
		return "added"
	case a.lost:
		return "partial"
	case a.why.late:
		return "late"
	case a.why.failed:
		return "failed"
	}
	return "ended"
}

// String returns the phase's name in a diagnosis.
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

// stamp records when the attempt came to its phase.
func (a *attempt) stamp(now time.Time) {
	if a.stamped != a.phase {
		a.stamped, a.since = a.phase, now
	}
}
