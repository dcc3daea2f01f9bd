// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"context"
	"time"

	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
)

// tickEvery is the time between checks of attempts and elections.
const tickEvery = time.Second

// Run handles the times of attempts and waits, until ctx ends.
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

// tick checks all gangs once.
func (g *Gangs) tick() {
	g.rejectStrays()
	mayLead := g.scheduler.MayLead() // it has a lock of its own
	g.mu.Lock()
	keys := g.queue.keys(func(*gang) bool { return true })
	g.mu.Unlock()
	for _, key := range keys {
		g.do(func() (*gang, effects) {
			x := g.queue.gangs[key]
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
				e.activate = g.queue.turnOver(x)
			}
			e.settle = settle // its end is waited for
			return x, e
		})
	}
}

// RunRounds tries the waiting gangs again after changes, until ctx ends.
func (g *Gangs) RunRounds(ctx context.Context, clk clock.Clock) {
	r, q := &rounds{}, g.queue
	for {
		r.left -= time.Duration(q.planning.Swap(0))
		g.mu.Lock()
		key, wait, ok := r.next(clk.Now(), q.waiting, q.first, q.isTried)
		g.mu.Unlock()
		q.debt.Store(int64(-r.left))
		if ok {
			g.try(key)
			continue
		}
		timer := clk.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-q.wake:
			r.change(clk.Now())
		case <-q.planned:
		case <-timer.C():
		}
		timer.Stop()
	}
}

// try activates a gang's member, if the gang still waits for a change.
func (g *Gangs) try(key gangrequest.Key) {
	g.do(func() (*gang, effects) {
		x, next := g.queue.try(key)
		return x, effects{activate: next}
	})
}
