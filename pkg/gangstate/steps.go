// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/gangrequest"
)

const (
	// minAttempt and perMember bound the time from the first member's Reserve to the last
	// one's Permit: who waits stays in flight, and the queue keeps every event for it.
	minAttempt = 10 * time.Second
	perMember  = 50 * time.Millisecond
	// maxAttempt bounds what a PodGroup may ask for, as the places are held meanwhile, and the pause
	// after it. kube-scheduler ends what waits in Permit for 15 minutes.
	maxAttempt = 10 * time.Minute
	// latePause is how many times longer than an attempt the pause after one is that ended because
	// a member did not come.
	latePause = 10
)

// Turn is what a member's cycle is to do.
type Turn struct {
	// Why it can do nothing; empty if it may go on.
	Why string
	// Held: the member has its place already.
	Held bool
	// What else it needs to plan for all.
	Gang    *gangrequest.Gang
	Pods    []*v1.Pod // to be placed, in the order of ranks
	Refused map[Refusal]int64
	Fresh   bool      // no member is bound yet
	Rest    []*v1.Pod // Pods is a member above the minimum: those that come after it
	// Complete is when the last of Pods came, by the API server: what younger is measured by.
	Complete time.Time
	Claim    *Claim // what is held until others are gone; nil if nothing is
}

// Begin says what the cycle of a pod, which begins now, is to do. ok is false for a pod that is
// no member.
func (g *Gangs) Begin(pod *v1.Pod) (t Turn, ok bool) {
	g.leads.Store(true)
	key, ok := gangrequest.KeyOf(pod)
	if !ok {
		return t, false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	x := g.queue.gangs[key]
	if x == nil || x.pods[pod.UID] == nil {
		return Turn{Why: "gang: the pod is not known yet"}, true
	}
	g.queue.readNow(x)
	x.queued, x.known = "", true
	if t.Why = g.queue.gate(x, pod.UID, false); t.Why != "" {
		x.tried = false
		return t, true
	}
	if x.attempt != nil {
		return Turn{Held: true}, true
	}
	x.refusals.forget(g.clock.Now())
	t = Turn{
		Gang: x.read, Pods: x.turns.pods, Refused: make(map[Refusal]int64, len(x.refusals.nodes)), Fresh: !x.turns.follows, Complete: g.holds.completed(x), Rest: x.turns.rest,
		Claim: x.claim,
	}
	maps.Copy(t.Refused, x.refusals.nodes)
	return t, true
}

// Room takes note that a gang could be placed, and returns when it could for the first time since
// it is complete. A gang that waits for more than room is patient from then on.
func (g *Gangs) Room(key gangrequest.Key) time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.clock.Now()
	x := g.queue.gangs[key]
	if x == nil {
		return now
	}
	if x.room.IsZero() {
		x.room = now
	}
	return x.room
}

// Hold begins an attempt: the cycle of first has made the entries of all. It fails if one of
// them is not to be placed any more; the caller ends the entries then.
func (g *Gangs) Hold(t *Turn, first *v1.Pod, answer *Answer) (ok bool) {
	g.do(func() (*gang, effects) {
		x := g.queue.gangs[t.Gang.Key]
		if x == nil || x.attempt != nil || x.busy > 0 || x.unsettled.evicting {
			return nil, effects{}
		}
		if g.queue.readNow(x); g.queue.incomplete(x) != "" || !samePods(x.turns.pods, t.Pods) {
			return nil, effects{}
		}
		uids := make([]types.UID, len(t.Pods))
		for i, pod := range t.Pods {
			uids[i] = pod.UID
		}
		x.tried = false
		signal(g.queue.planned)
		limit := x.timeout(len(uids))
		x.attempt = hold(uids, first.UID, g.clock.Now().Add(limit))
		x.attempt.limit = limit
		x.attempt.stamp(g.clock.Now())
		if timeout := g.config.ScheduleTimeout; timeout > 0 {
			x.attempt.keep = min(maxKeep, timeout/2) // the other half is for another place
		}
		x.commit = &Commit{Key: x.key, Group: x.group, Members: uids, Fresh: !x.turns.follows, Answer: answer}
		g.holds.showHeld(x)
		ok = true
		return nil, effects{}
	})
	return ok
}

// Timeout is how long an attempt of so many members may last, if the gang does not say.
func Timeout(members int) time.Duration {
	return max(minAttempt, time.Duration(members)*perMember)
}

// timeout is how long an attempt to place so many members may last. Its PodGroup may ask for longer
// before the gang runs.
func (r *reading) timeout(members int) time.Duration {
	if r.turns.follows {
		return Timeout(members)
	}
	return max(Timeout(members), min(r.read.MemberWait, maxAttempt))
}

func samePods(a, b []*v1.Pod) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].UID != b[i].UID {
			return false
		}
	}
	return true
}

// Reserved takes note of the Reserve of a member that had its entry. It reports whether the
// member may go on.
func (g *Gangs) Reserved(uid types.UID) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	x := g.queue.byPod[uid]
	return x != nil && x.attempt.begun(uid)
}

// Permit takes note of a member's Permit. It reports whether the member may go on, and how long
// it waits before; 0 is not at all.
func (g *Gangs) Permit(uid types.UID) (timeout time.Duration, ok bool) {
	g.do(func() (*gang, effects) {
		x := g.queue.byPod[uid]
		if x == nil || x.attempt == nil {
			return nil, effects{}
		}
		e, is := x.attempt.permitted(uid)
		if ok = is != refuse; is == wait {
			timeout = x.attempt.deadline.Sub(g.clock.Now()) + minAttempt // after the attempt's own end
		}
		return x, e
	})
	return timeout, ok
}

// Rank is the rank of a member that is on its way to be bound.
func (g *Gangs) Rank(uid types.UID) (rank int, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	x := g.queue.byPod[uid]
	if x == nil || x.commit == nil || x.commit.Answer == nil {
		return 0, false
	}
	rank, ok = x.commit.Answer.Ranks[uid]
	return rank, ok
}

// Written ends the write that Doer.Commit began.
func (g *Gangs) Written(c *Commit, err error) {
	g.do(func() (*gang, effects) {
		x := g.queue.gangs[c.Key]
		if x == nil || x.commit != c || x.attempt == nil {
			return nil, effects{}
		}
		return x, x.attempt.written(err)
	})
}

// Unreserved takes note that a member's cycle ended without success.
func (g *Gangs) Unreserved(uid types.UID) {
	g.do(func() (*gang, effects) {
		delete(g.strays, uid)
		x := g.queue.byPod[uid]
		if x == nil || x.attempt == nil {
			return nil, effects{}
		}
		return x, x.attempt.unreserved(uid, "a member could not be bound")
	})
}

// RefusedBy takes note that another plugin refused a member its node, at the node's generation.
// The places of all are looked for anew, but not for ever.
func (g *Gangs) RefusedBy(pod *v1.Pod, node Refusal, generation int64, why string) {
	g.do(func() (*gang, effects) {
		x := g.queue.byPod[pod.UID]
		if x == nil {
			return nil, effects{}
		}
		if node.Node != "" {
			x.refusals.add(node, generation, g.clock.Now())
		}
		x.refusals.plans++
		x.turn++ // another member comes sooner than this one, which is in flight
		if x.refusals.plans >= maxTries {
			g.holds.endInVain(x)
			g.queue.keepWaiting(x, &Wait{Why: why, Until: g.clock.Now().Add(maxPause)})
		}
		switch a := x.attempt; {
		case a == nil:
			return x, effects{activate: g.queue.next(x)}
		case a.phase == committed:
			return x, a.givenUp(pod.UID)
		case a.live():
			return x, a.end(why)
		}
		return nil, effects{}
	})
}

// Wait keeps a gang from being tried, until something changes or the time has come. If it is a
// member above the minimum that has to wait, the next one is tried.
func (g *Gangs) Wait(key gangrequest.Key, w *Wait) {
	g.do(func() (*gang, effects) {
		x := g.queue.gangs[key]
		if x == nil {
			return nil, effects{}
		}
		g.queue.keepWaiting(x, w)
		return x, effects{activate: g.queue.next(x)}
	})
}

// NotHeld keeps a gang from being tried for a pause that grows: it was planned, and its places could
// not be held. What refused them may refuse the next plan, too.
func (g *Gangs) NotHeld(key gangrequest.Key, why string) {
	g.do(func() (*gang, effects) {
		x := g.queue.gangs[key]
		if x == nil {
			return nil, effects{}
		}
		g.queue.keepWaiting(x, &Wait{Why: why, Until: g.clock.Now().Add(x.pause())})
		return x, effects{activate: g.queue.next(x)}
	})
}
