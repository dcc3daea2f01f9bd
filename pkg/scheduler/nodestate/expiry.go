// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
)

// expiryInterval is how often Leases are looked at that may have run out: what nobody
// writes no informer tells of.
const expiryInterval = 5 * time.Second

// expiryWatch tells of what ends with time, of which no event tells.
type expiryWatch struct {
	clock         clock.WithTicker
	leases        *nodelease.Table
	table         *AllocationTable
	placesByCount atomic.Bool // some profile places pods by count where graphs are stale
}

// SetCountStale says that some profile places pods by count on nodes with stale graphs.
func (s *State) SetCountStale() { s.expiry.placesByCount.Store(true) }

// run wakes waiting pods when a Lease runs out and that lets some of them fit: an
// agent's, whose word that pods which are gone still hold GPUs is no longer believed,
// and an exporter's where pods are placed by count, or the term of a graph that cannot
// be read any more. And when the time is over for which GPUs were kept for a nominated pod.
func (w *expiryWatch) run(ctx context.Context) {
	ticker := w.clock.NewTicker(expiryInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		if w.expired() {
			w.table.changes.freed()
		}
		w.table.changes.tell(w.table.reservations.ExpireNominated()) // no cycle may come that would
	}
}

// expired takes note of the Leases and terms that ran out since the last call, and reports whether
// some pod may fit for it.
func (w *expiryWatch) expired() (freed bool) {
	for _, name := range w.leases.Expired(w.clock.Now()) {
		if node, ok := strings.CutPrefix(name, nodelease.AgentPrefix); ok {
			x := w.table.cache.cells.get(node)
			if x == nil {
				continue
			}
			// Whether a cycle has looked at the node since or not.
			if u := x.usage.Load(); u != nil && u.Unreleased {
				w.table.changes.touch(x)
				freed = true
			}
		} else if node, ok := strings.CutPrefix(name, nodelease.ExporterPrefix); ok && w.placesByCount.Load() {
			w.table.changes.touchNode(node)
			freed = true
		}
	}
	if !w.placesByCount.Load() {
		return freed
	}
	for _, node := range w.table.cache.topologies.Ended() {
		w.table.changes.touch(w.table.cache.cells.ensure(node))
		freed = true
	}
	return freed
}
