// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// maxWriting is how many writes may be under way at a time, and how many choices may
	// be on their way to the API server before new ones wait. A narrowed cycle is several
	// times faster than the API server binds, and a gang goes all at once; a thousand
	// writes at once make it refuse some (each comes again a second later) and starve its
	// own watches. By default it serves 200 writes at a time.
	maxWriting = 64
	// maxRoomWait bounds the wait of one pod, so that an API server that stands
	// still only slows the scheduler down.
	maxRoomWait = 200 * time.Millisecond
)

// writes are the requests by which choices are written and their pods bound.
type writes struct {
	room              *semaphore.Weighted // its waiters are served in the order of their coming
	waiting, underWay atomic.Int64
}

func newWrites() *writes { return &writes{room: semaphore.NewWeighted(maxWriting)} }

// BeginWrite counts the pod's choice, if it has one, among those that are being written,
// and waits until one more write may be under way. Nothing is locked meanwhile, so ask
// what the write depends on afterwards: much may have changed. Call end when the write
// has been answered. It fails only if ctx ends before.
func (s *State) BeginWrite(ctx context.Context, uid types.UID, node string) (end func(), err error) {
	s.Announced(uid, node)
	w := s.writes
	w.waiting.Add(1)
	err = w.room.Acquire(ctx, 1)
	w.waiting.Add(-1)
	if err != nil {
		return nil, fmt.Errorf("waiting until fewer than %d choices are being written: %w", maxWriting, err)
	}
	w.underWay.Add(1)
	return sync.OnceFunc(func() {
		w.underWay.Add(-1)
		w.room.Release(1)
	}), nil
}

// AwaitRoom waits, but not long, while many choices are being written.
func (s *State) AwaitRoom(ctx context.Context) {
	if s.writing.Load() < maxWriting {
		return
	}
	limit := s.clock.After(maxRoomWait)
	for s.writing.Load() >= maxWriting {
		select {
		case <-ctx.Done():
			return
		case <-limit:
			return
		case <-s.room:
		}
	}
}

// Announced marks that the pod's binding goes on to its writes, which BeginWrite does as
// well. Do not call it for a pod that another plugin holds at Permit: it may wait for
// many more to come.
func (s *State) Announced(uid types.UID, node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.reservationOf(uid, node); c != nil {
		s.countWriting(c, true)
	}
}

// countWriting keeps the number of reservations that are being written; it needs s.mu.
func (s *State) countWriting(c *reservation, writing bool) {
	switch {
	case c.writing == writing:
		return
	case writing:
		s.writing.Add(1)
	default:
		s.writing.Add(-1)
		select {
		case s.room <- struct{}{}:
		default:
		}
	}
	c.writing = writing
}
