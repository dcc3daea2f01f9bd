// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"cmp"
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/gangrequest"
)

// tickEvery is how often attempts and elections are looked at.
const tickEvery = time.Second

// Run sees to the times of attempts and waits, until ctx ends.
func (g *Gangs) Run(ctx context.Context, clk clock.WithTicker) {
	ticker := clk.NewTicker(tickEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			g.tick()
		}
	}
}

// tick is one look at all gangs.
func (g *Gangs) tick() {
	g.rejectStrays()
	mayLead := g.scheduler.MayLead() // it has a lock of its own
	for _, key := range g.keys(func(*gang) bool { return true }) {
		g.do(func() (*gang, effects) {
			x := g.gangs[key]
			if x == nil {
				return nil, effects{}
			}
			x.events = 0
			settle := g.settle(x, mayLead)
			if x.attempt != nil {
				return x, x.attempt.tick(g.clock.Now())
			}
			e := g.outdated(x)
			if !e.any() {
				e = g.tell(x)
				e.activate = g.turnOver(x)
			}
			e.settle = settle // its end is waited for
			return x, e
		})
	}
}

// turnOver elects another member if the one before did not come, or has it come again. It needs g.mu.
func (g *Gangs) turnOver(x *gang) []types.UID {
	now := g.clock.Now()
	if w := x.waits; w != nil && !w.Until.IsZero() && !now.Before(w.Until) {
		x.turnAt = now
		if g.behind() {
			x.waits = &Wait{Why: w.Why, ForChange: true}
			g.Changed()
			return nil
		}
		x.waits = nil
		return g.next(x)
	}
	next := g.next(x)
	switch {
	case next == nil:
		x.turnAt = time.Time{}
	case x.turnAt.IsZero():
		x.turnAt = now
	case now.Sub(x.turnAt) < turnAfter:
	case x.queued == next[0] && now.Sub(x.turnAt) < queuedTurnAfter:
		return next // it may have left the queue without a cycle
	default:
		x.turn++
		x.turnAt = now
		return g.next(x)
	}
	return nil
}

// keys returns the gangs of a kind in the order in which they are tried.
func (g *Gangs) keys(of func(*gang) bool) []gangrequest.Key {
	g.mu.Lock()
	defer g.mu.Unlock()
	var found []*gang
	for _, x := range g.gangs {
		if of(x) {
			found = append(found, x)
		}
	}
	slices.SortFunc(found, func(a, b *gang) int {
		return cmp.Or(cmp.Compare(b.priority, a.priority), a.since.Compare(b.since), cmp.Compare(a.key.String(), b.key.String()))
	})
	keys := make([]gangrequest.Key, len(found))
	for i, x := range found {
		keys[i] = x.key
	}
	return keys
}
