// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/nvtopo/nvtopo/pkg/gangrequest"
)

// Claim is what is held for all members of a gang that waits for pods to go. It is immutable. It
// is no attempt: until the pods are gone nobody may use what is held. When they are, the gang is
// planned anew, as if its claim were not there.
type Claim struct {
	Places  []Located // of the members of a turn
	Waits   []Located // who is to go: evicted for the gang, or going anyway; without any the gang is tried at once
	Until   time.Time // when they should be gone, and the gang have had its turn
	Because string    // what its members are told
}

// Claim takes note that the entries of a turn's members are held until others are gone. It fails
// if one of them is not to be placed any more; the caller ends the entries then. A member above the
// minimum that was passed over since its plan failed has the next turn.
func (g *Gangs) Claim(t *Turn, c *Claim) (ok bool) {
	g.do(func() (*gang, effects) {
		x := g.queue.gangs[t.Gang.Key]
		if x == nil || x.attempt != nil || x.claim != nil || x.busy > 0 || g.queue.incomplete(x) != "" {
			return nil, effects{}
		}
		x.claim = c
		if !samePods(x.turns.pods, t.Pods) {
			x.turns = g.queue.turnsOf(x)
		}
		if !samePods(x.turns.pods, t.Pods) {
			x.claim = nil
			x.turns = g.queue.turnsOf(x)
			return nil, effects{}
		}
		for _, pod := range t.Pods {
			delete(x.passed, pod.UID)
		}
		if len(c.Waits) > 0 {
			x.waits = &Wait{Why: c.Because, ForChange: true, Until: c.Until}
		}
		ok = true
		g.holds.showHeld(x)
		return nil, effects{}
	})
	return ok
}

// EndClaim ends what is held for a gang that waits for others to go. why, if not empty, is said
// while the gang is not planned anew.
func (g *Gangs) EndClaim(key gangrequest.Key, why string) {
	g.do(func() (*gang, effects) {
		x := g.queue.gangs[key]
		if x == nil || x.claim == nil {
			return nil, effects{}
		}
		if why != "" {
			x.waits = &Wait{Why: why, ForChange: true}
			g.queue.Changed()
		}
		return x, x.endClaim()
	})
}

// ClaimedNode is where a place is held for a member until others are gone; empty if none is.
func (g *Gangs) ClaimedNode(uid types.UID) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.claimedNode(uid)
}

// claimedNode needs g.mu.
func (g *Gangs) claimedNode(uid types.UID) string {
	x := g.queue.byPod[uid]
	if x == nil || x.claim == nil {
		return ""
	}
	for _, l := range x.claim.Places {
		if l.Pod.UID == uid {
			return l.Node
		}
	}
	return ""
}

// HoldsPlace reports whether a place is held for a member: until others are gone, or by an attempt that has not
// ended.
func (g *Gangs) HoldsPlace(uid types.UID) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	x := g.queue.byPod[uid]
	return x != nil && (x.attempt.has(uid) || g.claimedNode(uid) != "")
}

// endClaim needs g.mu.
func (x *gang) endClaim() (e effects) {
	if x.claim == nil {
		return e
	}
	for _, l := range x.claim.Places {
		e.release = append(e.release, l.Pod.UID)
	}
	x.claim = nil
	return e
}

// outdated ends a claim whose time is over, or that is for others than are to be placed now. It
// needs g.mu.
func (g *Gangs) outdated(x *gang) (e effects) {
	if x.claim == nil {
		return e
	}
	same := g.queue.incomplete(x) == "" && slices.EqualFunc(x.turns.pods, x.claim.Places, func(pod *v1.Pod, l Located) bool { return pod.UID == l.Pod.UID })
	if same && g.clock.Now().Before(x.claim.Until) {
		return e
	}
	x.waits = nil
	e = x.endClaim()
	e.activate = g.queue.next(x)
	return e
}

// Yield takes back what is held for a gang that is not committed, because another one of a higher
// priority needs it. It is planned anew.
func (g *Gangs) Yield(key gangrequest.Key, why string) {
	g.do(func() (*gang, effects) {
		if x := g.queue.gangs[key]; x != nil {
			return x, g.yield(x, nil, why)
		}
		return nil, effects{}
	})
}

// YieldPods is Yield for the gangs of some members. Of a committed gang only those members lose
// their places that have not begun to use them.
func (g *Gangs) YieldPods(uids []types.UID, why string) {
	seen := sets.New[gangrequest.Key]()
	for _, uid := range uids {
		g.do(func() (*gang, effects) {
			x := g.queue.byPod[uid]
			if x == nil || seen.Has(x.key) {
				return nil, effects{}
			}
			seen.Insert(x.key)
			return x, g.yield(x, uids, why)
		})
	}
}

// yield needs g.mu.
func (g *Gangs) yield(x *gang, uids []types.UID, why string) (e effects) {
	switch a := x.attempt; {
	case x.claim != nil:
		x.waits = &Wait{Why: why, ForChange: true}
		g.queue.Changed()
		return x.endClaim()
	case a == nil || a.phase == ending || a.phase == none:
		return e
	case a.phase != committed:
		return a.end(why)
	}
	for _, uid := range uids {
		part := x.attempt.givenUp(uid)
		e.release = append(e.release, part.release...)
		e.over = e.over || part.over
	}
	return e
}

// Expected are the pods that go for gangs, whether the API server has heard of it or not.
func (g *Gangs) Expected() sets.Set[types.UID] {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := sets.New[types.UID]()
	for _, x := range g.queue.gangs {
		if x.claim != nil {
			for _, l := range x.claim.Waits {
				out.Insert(l.Pod.UID)
			}
		}
	}
	return out
}

func compareKeys(a, b gangrequest.Key) int {
	return cmp.Or(cmp.Compare(a.Source, b.Source), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}
