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

// expiryInterval is the time between checks for expired Leases: informers have no event for a Lease that
// is not renewed.
const expiryInterval = 5 * time.Second

// expiryWatch detects Leases and terms that run out, for which there are no events.
type expiryWatch struct {
	clock         clock.WithTicker
	leases        *nodelease.Table
	table         *AllocationTable
	placesByCount atomic.Bool // some profile places pods by count where graphs are stale
}

// SetCountStale records that some profile places pods by count on nodes with stale graphs.
func (s *State) SetCountStale() { s.expiry.placesByCount.Store(true) }

// run wakes waiting pods when something runs out that lets some of them fit: an agent's Lease, after
// which its record for pods that are gone is no longer used; an exporter's Lease, where pods are placed
// by count; the term of a graph that can no longer be read; or the time for which GPUs were kept for a
// nominated pod.
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
		w.table.changes.tell(w.table.reservations.ExpireNominated()) // in case no cycle comes to do so
	}
}

// expired handles the Leases and terms that ran out since the last call, and reports whether some pod may
// fit because of them.
func (w *expiryWatch) expired() (freed bool) {
	for _, name := range w.leases.Expired(w.clock.Now()) {
		if node, ok := strings.CutPrefix(name, nodelease.AgentPrefix); ok {
			x := w.table.cache.cells.get(node)
			if x == nil {
				continue
			}
			// This applies whether or not a cycle has looked at the node since.
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
