// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
)

const (
	// maxWriting is how many writes may be in flight at a time, and how many allocations may be on their way
	// to the API server before new ones wait. A narrowed cycle is several times faster than the API server
	// binds, and a gang is bound all at once; a thousand writes at once make it refuse some (each is retried
	// a second later) and starve its own watches. By default it serves 200 writes at a time.
	maxWriting = 64
	// maxWritesWait bounds the wait of one pod, so that an API server that stands
	// still only slows the scheduler down.
	maxWritesWait = 200 * time.Millisecond
)

// writes limits the requests that write allocations and bind their pods.
type writes struct {
	slots            *semaphore.Weighted // its waiters are served in order of arrival
	queued, underWay atomic.Int64
}

func newWrites() *writes { return &writes{slots: semaphore.NewWeighted(maxWriting)} }

// begin waits until one more write may be in flight. Call end when it has been answered.
func (w *writes) begin(ctx context.Context) (end func(), err error) {
	w.queued.Add(1)
	err = w.slots.Acquire(ctx, 1)
	w.queued.Add(-1)
	if err != nil {
		return nil, fmt.Errorf("waiting until fewer than %d choices are being written: %w", maxWriting, err)
	}
	w.underWay.Add(1)
	return sync.OnceFunc(func() {
		w.underWay.Add(-1)
		w.slots.Release(1)
	}), nil
}

// BeginWrite waits until one more write, of no allocation, may be in flight. Call end when it has been
// answered.
func (b *Binder) BeginWrite(ctx context.Context) (end func(), err error) { return b.writes.begin(ctx) }

// AwaitWrites waits up to maxWritesWait while many allocations are being written.
func (b *Binder) AwaitWrites(ctx context.Context) {
	if b.reservations.Writing() < maxWriting {
		return
	}
	limit := b.clock.After(maxWritesWait)
	for b.reservations.Writing() >= maxWriting {
		select {
		case <-ctx.Done():
			return
		case <-limit:
			return
		case <-b.reservations.Arrived():
		}
	}
}
