// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Claim has the places held for all members of a gang that waits for pods to end. It is immutable. It is
// no attempt: until the pods have ended the places must not be used. Then the gang is planned again, as
// if it had no claim.
type Claim struct {
	Places  []Located // places of the members of a turn
	Waits   []Located // pods to wait for: evicted for the gang, or ending anyway; without any the gang is tried at once
	Until   time.Time // when they should have ended, and the gang been tried
	Because string    // reason that its members report
}

// endClaim ends the claim, if there is one.
func (p *placing) endClaim() (e effects) {
	if p.claim == nil {
		return e
	}
	for _, l := range p.claim.Places {
		e.release = append(e.release, l.Pod.UID)
	}
	p.claim = nil
	return e
}

// claimed returns the node of a member's place in the claim; empty if there is none.
func (p *placing) claimed(uid types.UID) string {
	if p.claim == nil {
		return ""
	}
	for _, l := range p.claim.Places {
		if l.Pod.UID == uid {
			return l.Node
		}
	}
	return ""
}

// outdated ends a claim whose time is over, or whose members differ from those to be placed now. The
// caller holds s.mu.
func (s *stepper) outdated(x *gang) (e effects) {
	if x.claim == nil {
		return e
	}
	same := s.queue.incomplete(x) == "" && slices.EqualFunc(x.turns.pods, x.claim.Places, func(pod *v1.Pod, l Located) bool { return pod.UID == l.Pod.UID })
	if same && s.clock.Now().Before(x.claim.Until) {
		return e
	}
	x.waits = nil
	e = x.endClaim()
	e.activate = s.queue.next(x)
	return e
}

// yield takes back the places held for a gang, or, if it is committed, those of the given members that
// have not begun to use them. The caller holds s.mu.
func (s *stepper) yield(x *gang, uids []types.UID, why string) (e effects) {
	switch a := x.attempt; {
	case x.claim != nil:
		x.waits = &Wait{Why: why, ForChange: true}
		s.queue.Changed()
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
