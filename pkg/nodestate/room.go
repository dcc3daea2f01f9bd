// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// maxWriting is how many choices may be on their way to the API server before
	// new ones wait. A narrowed cycle is several times faster than the API server
	// binds; a thousand writes at once make it refuse some (each comes again a second
	// later) and starve its own watches. By default it serves 200 writes at a time.
	maxWriting = 64
	// maxRoomWait bounds the wait of one pod, so that an API server that stands
	// still only slows the scheduler down.
	maxRoomWait = 200 * time.Millisecond
)

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

// Announced marks that the pod's binding goes on to its writes. Do not call it for
// a pod that another plugin holds at Permit: it may wait for many more to come.
func (s *State) Announced(uid types.UID, node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.claimOf(uid, node); c != nil {
		s.countWriting(c, true)
	}
}

// countWriting keeps the number of claims that are being written; it needs s.mu.
func (s *State) countWriting(c *claim, writing bool) {
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
