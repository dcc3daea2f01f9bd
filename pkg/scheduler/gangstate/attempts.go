// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// Turn is the task of a member's cycle.
type Turn struct {
	// Why the cycle must end; empty if it may go on.
	Why string
	// Held: the member has its place already.
	Held bool
	// Inputs for planning all members.
	Gang    *gangrequest.Gang
	Pods    []*v1.Pod // to be placed, in the order of ranks
	Refused map[Refusal]int64
	Fresh   bool      // no member is bound yet
	Rest    []*v1.Pod // if Pods is one member above the minimum: the members after it
	// Complete is when the last of Pods was created, according to the API server; younger gangs are compared
	// with it.
	Complete time.Time
	Claim    *Claim // the claim held until other pods have ended; nil if there is none
}

// Attempts is the part of Gangs for the cycles of members: their tasks, and their progress.
type Attempts struct{ *stepper }

// Begin returns the task of the cycle of a pod, which begins now. ok is false for a pod that is no
// member.
func (a Attempts) Begin(pod *v1.Pod) (t Turn, ok bool) {
	a.leads.Store(true)
	key, ok := gangrequest.KeyOf(pod)
	if !ok {
		return t, false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	x := a.queue.gangs[key]
	if x == nil || x.pods[pod.UID] == nil {
		return Turn{Why: "gang: the pod is not known yet"}, true
	}
	a.queue.readNow(x)
	x.queued, x.known = "", true
	if t.Why = a.queue.gate(x, pod.UID, false); t.Why != "" {
		x.tried = false
		return t, true
	}
	if x.attempt != nil {
		return Turn{Held: true}, true
	}
	x.refusals.forget(a.clock.Now())
	t = Turn{
		Gang: x.read, Pods: x.turns.pods, Refused: make(map[Refusal]int64, len(x.refusals.nodes)), Fresh: !x.turns.follows, Complete: a.holds.completed(x), Rest: x.turns.rest,
		Claim: x.claim,
	}
	maps.Copy(t.Refused, x.refusals.nodes)
	return t, true
}

// Room records that a gang could be placed, and returns when it first could since it is complete. The
// topology wait timeout of a gang that waits for a better level begins then.
func (a Attempts) Room(key gangrequest.Key) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.clock.Now()
	x := a.queue.gangs[key]
	if x == nil {
		return now
	}
	if x.room.IsZero() {
		x.room = now
	}
	return x.room
}

// Hold begins an attempt: the cycle of first has made the reservations of all members. It fails if one of
// them need not be placed any more; the caller then ends the reservations.
func (a Attempts) Hold(t *Turn, first *v1.Pod, answer *Answer) (ok bool) {
	a.do(func() (*gang, effects) {
		x := a.queue.gangs[t.Gang.Key]
		if x == nil || x.attempt != nil || x.busy > 0 || x.unsettled.evicting {
			return nil, effects{}
		}
		if a.queue.readNow(x); a.queue.incomplete(x) != "" || !samePods(x.turns.pods, t.Pods) {
			return nil, effects{}
		}
		uids := make([]types.UID, len(t.Pods))
		for i, pod := range t.Pods {
			uids[i] = pod.UID
		}
		x.tried = false
		signal(a.queue.planned)
		limit := x.timeout(len(uids))
		x.attempt = hold(uids, first.UID, a.clock.Now().Add(limit))
		x.attempt.limit = limit
		x.attempt.stamp(a.clock.Now())
		if timeout := a.config.ScheduleTimeout; timeout > 0 {
			x.attempt.keep = min(maxKeep, timeout/2) // the other half is for another place
		}
		x.commit = &Commit{Key: x.key, Group: x.group, Members: uids, Fresh: !x.turns.follows, Answer: answer}
		a.holds.showHeld(x)
		ok = true
		return nil, effects{}
	})
	return ok
}

// Reserved records the Reserve of a member that had its reservation. It reports whether the member may go
// on.
func (a Attempts) Reserved(uid types.UID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	x := a.queue.byPod[uid]
	return x != nil && x.attempt.begun(uid)
}

// Permit records a member's Permit. It reports whether the member may go on, and how long it waits
// before; 0 is not at all.
func (a Attempts) Permit(uid types.UID) (timeout time.Duration, ok bool) {
	a.do(func() (*gang, effects) {
		x := a.queue.byPod[uid]
		if x == nil || x.attempt == nil {
			return nil, effects{}
		}
		e, is := x.attempt.permitted(uid)
		if ok = is != refuse; is == wait {
			timeout = x.attempt.deadline.Sub(a.clock.Now()) + minAttempt // after the attempt's own end
		}
		return x, e
	})
	return timeout, ok
}

// Rank returns the rank of a member of the present attempt.
func (a Attempts) Rank(uid types.UID) (rank int, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	x := a.queue.byPod[uid]
	if x == nil || x.commit == nil || x.commit.Answer == nil {
		return 0, false
	}
	rank, ok = x.commit.Answer.Ranks[uid]
	return rank, ok
}

// Written records the end of the write that Doer.Commit began.
func (a Attempts) Written(c *Commit, err error) {
	a.do(func() (*gang, effects) {
		x := a.queue.gangs[c.Key]
		if x == nil || x.commit != c || x.attempt == nil {
			return nil, effects{}
		}
		return x, x.attempt.written(err)
	})
}

// Unreserved records that a member's cycle ended without success.
func (a Attempts) Unreserved(uid types.UID) {
	a.do(func() (*gang, effects) {
		delete(a.strays, uid)
		x := a.queue.byPod[uid]
		if x == nil || x.attempt == nil {
			return nil, effects{}
		}
		return x, x.attempt.unreserved(uid, "a member could not be bound")
	})
}

// RefusedBy records that another plugin refused a node to a member, at the node's generation. All members
// are planned again, at most maxTries times in a row.
func (a Attempts) RefusedBy(pod *v1.Pod, node Refusal, generation int64, why string) {
	a.do(func() (*gang, effects) {
		x := a.queue.byPod[pod.UID]
		if x == nil {
			return nil, effects{}
		}
		if node.Node != "" {
			x.refusals.add(node, generation, a.clock.Now())
		}
		x.refusals.plans++
		x.turn++ // another member comes sooner than this one, which is in flight
		if x.refusals.plans >= maxTries {
			a.holds.endInVain(x)
			a.queue.keepWaiting(x, &Wait{Why: why, Until: a.clock.Now().Add(maxPause)})
		}
		switch t := x.attempt; {
		case t == nil:
			return x, effects{activate: a.queue.next(x)}
		case t.phase == committed:
			return x, t.givenUp(pod.UID)
		case t.live():
			return x, t.end(why)
		}
		return nil, effects{}
	})
}

// Wait keeps a gang from being tried, until something changes or the time has come. If a member above the
// minimum has to wait, the next one is tried.
func (a Attempts) Wait(key gangrequest.Key, w *Wait) {
	a.do(func() (*gang, effects) {
		x := a.queue.gangs[key]
		if x == nil {
			return nil, effects{}
		}
		a.queue.keepWaiting(x, w)
		return x, effects{activate: a.queue.next(x)}
	})
}

// NotHeld keeps a gang from being tried for a pause that grows: it was planned, and its places could not
// be reserved. The same cause may refuse the next plan, too.
func (a Attempts) NotHeld(key gangrequest.Key, why string) {
	a.do(func() (*gang, effects) {
		x := a.queue.gangs[key]
		if x == nil {
			return nil, effects{}
		}
		a.queue.keepWaiting(x, &Wait{Why: why, Until: a.clock.Now().Add(x.pause())})
		return x, effects{activate: a.queue.next(x)}
	})
}

// promiseKept is how long a gang without running members waits for the model that it was promised. Kueue
// evicts a job whose pods have no node after some minutes; another model must be used before that.
const promiseKept = time.Minute

// AnyModelFrom returns the time from which the members of a turn get GPUs of any model if their own model
// has no room: AnyModelAfter after they were complete if members run, and promiseKept after it if none
// does and a model was promised. It is zero if that never comes.
func (a Attempts) AnyModelFrom(t *Turn) (at time.Time) {
	after := a.config.AnyModelAfter
	promised := func(pod *v1.Pod) bool { return podrequest.PromisedModelOf(pod) != "" }
	if t.Fresh {
		after = promiseKept
	}
	if after <= 0 || len(t.Pods) == 0 || t.Fresh && !slices.ContainsFunc(t.Pods, promised) {
		return at
	}
	return t.Complete.Add(after)
}
