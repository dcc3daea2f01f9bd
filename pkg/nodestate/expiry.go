// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/nvtopo/nvtopo/pkg/nodelease"
)

// expiryInterval is how often Leases are looked at that may have run out: what nobody
// writes no informer tells of.
const expiryInterval = 5 * time.Second

// SetCountStale says that some profile places pods by count on nodes with stale graphs.
func (s *State) SetCountStale() { s.placesByCount.Store(true) }

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
			s.changes.freed()
		}
		s.changes.tell(s.reservations.ExpireNominated()) // no cycle may come that would
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
				s.changes.touch(x)
				freed = true
			}
		} else if node, ok := strings.CutPrefix(name, nodelease.ExporterPrefix); ok && s.placesByCount.Load() {
			s.changes.touchNode(node)
			freed = true
		}
	}
	if !s.placesByCount.Load() {
		return freed
	}
	for _, node := range s.topologies.Ended() {
		s.changes.touch(s.cells.ensure(node))
		freed = true
	}
	return freed
}

// deadline is the earliest of the times that somebody set.
type deadline struct {
	mu sync.Mutex
	at time.Time // zero: there is none
}

func (d *deadline) set(at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.at.IsZero() || at.Before(d.at) {
		d.at = at
	}
}

// passed reports, once, that it has come.
func (d *deadline) passed(now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.at.IsZero() || now.Before(d.at) {
		return false
	}
	d.at = time.Time{}
	return true
}

// TryAgainBy has the waiting pods tried again at this time, if nothing else has done so
// by then: what does not come to pass no event tells of.
func (s *State) TryAgainBy(at time.Time) { s.lookAgain.set(at) }
