// SPDX-License-Identifier: Apache-2.0

package webui

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// maxHeavy bounds the expensive responses in work, such as explanations, and maxHeavyOfCaller those of
	// one caller: fewer, so that other callers always get a turn.
	maxHeavy         = 3
	maxHeavyOfCaller = 2
	// maxAsked bounds one caller's requests that are in work or wait for their turn. The pages of a
	// restarted browser send as many at once, and again after 429.
	maxAsked = 8
	// heavyWait bounds the wait for a turn, and heavyTime the reads from the API server. Explanations read
	// nothing: they are not interrupted.
	heavyWait = 5 * time.Second
	heavyTime = 20 * time.Second
)

// heavy limits concurrent expensive responses.
type heavy struct {
	clock clock.WithTicker
	turns chan struct{} // one entry for each answer in work

	mu sync.Mutex
	of map[string]*asking // by caller
}

// asking counts one caller's expensive requests.
type asking struct {
	turns chan struct{} // one entry for each answer in work, or next for a turn of all
	all   int           // guarded by heavy.mu
}

func newHeavy(c clock.WithTicker) *heavy {
	return &heavy{clock: c, turns: make(chan struct{}, maxHeavy), of: map[string]*asking{}}
}

// enter waits for a turn; leave ends it.
func (h *heavy) enter(ctx context.Context, caller string) (leave func(), err error) {
	late := h.clock.After(heavyWait) // before queue, so that a caller that is counted below already waits by the clock
	a, err := h.queue(caller)
	if err != nil {
		return nil, err
	}
	if err := turn(ctx, a.turns, late); err != nil {
		h.unqueue(caller)
		return nil, err
	}
	if err := turn(ctx, h.turns, late); err != nil {
		<-a.turns
		h.unqueue(caller)
		return nil, err
	}
	return func() {
		<-h.turns
		<-a.turns
		h.unqueue(caller)
	}, nil
}

func (h *heavy) queue(caller string) (*asking, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	a := h.of[caller]
	if a == nil {
		a = &asking{turns: make(chan struct{}, maxHeavyOfCaller)}
		h.of[caller] = a
	}
	if a.all == maxAsked {
		return nil, &Refusal{http.StatusTooManyRequests, fmt.Sprintf("%d answers that cost much are in work for the same caller", maxAsked), "ask again when they have come"}
	}
	a.all++
	return a, nil
}

func (h *heavy) unqueue(caller string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.of[caller].all--; h.of[caller].all == 0 {
		delete(h.of, caller)
	}
}

// turn waits for room in a channel.
func turn(ctx context.Context, turns chan<- struct{}, late <-chan time.Time) error {
	select {
	case turns <- struct{}{}:
		return nil
	case <-late:
	case <-ctx.Done(): // the client is gone, or it is too late
	}
	return &Refusal{http.StatusServiceUnavailable, "others ask for what costs much", "try again in a moment"}
}
