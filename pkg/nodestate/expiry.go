// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"context"
	"strings"
	"time"
)

// expiryInterval is how often Leases are looked at that may have run out: what nobody
// writes no informer tells of.
const expiryInterval = 5 * time.Second

// CountStale says that some profile places pods by count on nodes with stale graphs.
func (s *State) CountStale() { s.counts.Store(true) }

// watchExpiry wakes waiting pods when a Lease runs out and that lets some of them fit: an
// agent's, whose word that pods which are gone still hold GPUs is no longer believed,
// and an exporter's where pods are placed by count, or the term of a graph that cannot
// be read any more. And when the time is over for which GPUs were kept for a nominated pod.
func (s *State) watchExpiry(ctx context.Context) {
	ticker := s.clock.NewTicker(expiryInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		if s.expired() {
			s.onFreed()
		}
		s.mu.Lock()
		s.expireHolds() // no cycle may come that would
		s.mu.Unlock()
	}
}

// expired takes note of the Leases and terms that ran out since the last call, and reports whether
// some pod may fit for it.
func (s *State) expired() (freed bool) {
	for _, name := range s.leases.expired(s.clock.Now()) {
		if node, ok := strings.CutPrefix(name, AgentLeasePrefix); ok {
			x := s.cells.get(node)
			if x == nil {
				continue
			}
			// Whether a cycle has looked at the node since or not.
			if u := x.usage.Load(); u != nil && u.leftovers {
				s.touch(x)
				freed = true
			}
		} else if node, ok := strings.CutPrefix(name, ExporterLeasePrefix); ok && s.counts.Load() {
			s.touchNode(node)
			freed = true
		}
	}
	if !s.counts.Load() {
		return freed
	}
	now := s.clock.Now()
	for _, x := range s.cells.all() {
		n := x.node.Load()
		over := n != nil && x.fault.Load() != nil && x.vouched(n, now) == UnreadableGraph
		if over && !x.outlived {
			s.touch(x)
			freed = true
		}
		x.outlived = over
	}
	return freed
}

// expired returns the Leases that ran out since the last call.
func (t *leaseTable) expired(now time.Time) (names []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, l := range t.times {
		switch fresh := l.fresh(now); {
		case fresh:
			l.lived = true
		case l.lived:
			l.lived = false
			names = append(names, name)
		}
	}
	return names
}
