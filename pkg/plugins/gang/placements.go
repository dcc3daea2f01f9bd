// SPDX-License-Identifier: Apache-2.0

package gang

import (
	"context"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/scheduler/gangstate"
)

const (
	// placedPerSecond and placedAtOnce bound the writes of the placements of gangs without a PodGroup. They
	// are not urgent: while many gangs come, their Bindings go first.
	placedPerSecond = 20
	placedAtOnce    = 20
)

// placements is a queue of gangs without a PodGroup that are whole, and whose placement is to be written.
type placements struct {
	queue workqueue.TypedInterface[gangrequest.Key]

	mu sync.Mutex
	of map[gangrequest.Key]*gangstate.Commit // the last of each; guarded by mu
}

func newPlacements() *placements {
	return &placements{queue: workqueue.NewTyped[gangrequest.Key](), of: map[gangrequest.Key]*gangstate.Commit{}}
}

func (p *placements) put(c *gangstate.Commit) {
	p.mu.Lock()
	p.of[c.Key] = c
	p.mu.Unlock()
	p.queue.Add(c.Key)
}

// take waits for a gang; nil once the queue is shut down. One that was put again while it was taken is in
// the queue once more, without a commit.
func (p *placements) take() *gangstate.Commit {
	for {
		key, over := p.queue.Get()
		if over {
			return nil
		}
		p.queue.Done(key) // there is one worker
		if c := p.remove(key); c != nil {
			return c
		}
	}
}

func (p *placements) remove(key gangrequest.Key) *gangstate.Commit {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.of[key]
	delete(p.of, key)
	return c
}

// runPlacements writes the placements of one gang after the other, until the process ends.
func (d *doer) runPlacements(limit flowcontrol.RateLimiter) {
	stop := context.AfterFunc(d.ctx, d.placements.queue.ShutDown)
	defer stop()
	for c := d.placements.take(); c != nil; c = d.placements.take() {
		if limit.Wait(d.ctx) != nil {
			return
		}
		d.writeWhole(c)
	}
}

// writeWhole writes that all members of an attempt are bound, and their placement.
func (d *doer) writeWhole(c *gangstate.Commit) {
	end, err := d.binder.BeginWrite(d.ctx)
	if err != nil {
		return // the process ends
	}
	defer end()
	if err := d.whole(c); err != nil && !apierrors.IsNotFound(err) {
		klog.FromContext(d.ctx).Error(err, "Writing where a gang is failed", "gang", c.Key.String())
	}
}
