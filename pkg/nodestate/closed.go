// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"slices"

	"github.com/nvtopo/nvtopo/pkg/nodestate/candidates"
)

// Closed are the places that are kept from some pods now.
func (s *State) Closed() *candidates.Closed { return &s.closed }

// Keep replaces the places that are kept for gangs. Pods that one was kept from are tried again,
// by and by. It may be called under any lock but the waker's.
func (s *State) Keep(places map[string][]*candidates.Kept) {
	before := s.closed.Kept()
	s.closed.Keep(places)
	for node, was := range before {
		if slices.ContainsFunc(was, func(k *candidates.Kept) bool { return !slices.Contains(places[node], k) }) {
			s.tryAgain()
			return
		}
	}
}

func (s *State) tryAgain() {
	s.waker.OpenGates()
	s.waker.WakeOthers()
}
