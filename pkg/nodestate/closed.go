// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"maps"
	"slices"

	"github.com/nvtopo/nvtopo/pkg/nodestate/candidates"
)

// Closed are the nodes that are closed to younger pods now.
func (s *State) Closed() *candidates.Closed { return &s.closed }

// Close replaces the closed nodes. Pods for which a node is open again are tried, by and by. It
// may be called under any lock but the waker's.
func (s *State) Close(nodes map[string]*candidates.Closure) {
	before := maps.Clone(s.closed.All())
	s.closed.Set(nodes)
	maps.DeleteFunc(before, func(node string, was *candidates.Closure) bool { return nodes[node] == was })
	if len(before) > 0 {
		s.tryAgain()
	}
}

// Keep replaces the places that are kept for replacements of members. Pods that one was kept
// from are tried again, by and by. It may be called under any lock but the waker's.
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
