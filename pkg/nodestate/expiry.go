// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"context"
	"strings"
	"time"

	"github.com/nvtopo/nvtopo/pkg/nodelease"
)

// expiryInterval is how often Leases are looked at that may have run out: what nobody
// writes no informer tells of.
const expiryInterval = 5 * time.Second

// SetCountStale says that some profile places pods by count on nodes with stale graphs.
func (s *State) SetCountStale() { s.counts.Store(true) }

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
		s.expireNominated() // no cycle may come that would
		s.mu.Unlock()
	}
}

// expired takes note of the Leases and terms that ran out since the last call, and reports whether
// some pod may fit for it.
func (s *State) expired() (freed bool) {
	for _, name := range s.leases.Expired(s.clock.Now()) {
		if node, ok := strings.CutPrefix(name, nodelease.AgentPrefix); ok {
			x := s.cells.get(node)
			if x == nil {
				continue
			}
			// Whether a cycle has looked at the node since or not.
			if u := x.usage.Load(); u != nil && u.Unreleased {
				s.touch(x)
				freed = true
			}
		} else if node, ok := strings.CutPrefix(name, nodelease.ExporterPrefix); ok && s.counts.Load() {
			s.touchNode(node)
			freed = true
		}
	}
	if !s.counts.Load() {
		return freed
	}
	for _, node := range s.topologies.Ended() {
		s.touch(s.cells.ensure(node))
		freed = true
	}
	return freed
}

// leaseBack tells whoever waits that the Lease of a node's program had run out and is
// renewed again.
func (s *State) leaseBack(name string) {
	if c := s.cells.get(nodelease.NodeOf(name)); c != nil {
		s.waker.LeaseBack(&c.waking)
		s.touch(c)
	}
}
