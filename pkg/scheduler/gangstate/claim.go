// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
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

// endClaim ends what is held until others are gone.
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

// claimed is where a place is held for a member until others are gone; empty if none is.
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

// outdated ends a claim whose time is over, or that is for others than are to be placed now. It
// needs s.mu.
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

// yield takes back what is held for a gang, or, if it is committed, for those of some members that have not begun to
// use it. It needs s.mu.
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
