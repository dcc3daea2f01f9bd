// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// watchdog bounds sequences of driver calls in time. A call into the driver cannot be cancelled: one that
// overruns keeps its goroutine and its thread until the driver answers. So that a sick driver costs one
// thread per sequence and not one per attempt, a sequence still running is refused at once.
type watchdog struct {
	clock   clock.Clock
	timeout time.Duration

	mu      sync.Mutex
	running map[string]bool // sequence -> abandoned by its caller; guarded by mu
}

func newWatchdog(c clock.Clock, timeout time.Duration) *watchdog {
	return &watchdog{clock: c, timeout: timeout, running: map[string]bool{}}
}

// stuckIn reports whether this sequence was abandoned and still runs.
func (w *watchdog) stuckIn(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.running[name]
}

// stuck reports whether any abandoned sequence still runs.
func (w *watchdog) stuck() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, abandoned := range w.running {
		if abandoned {
			return true
		}
	}
	return false
}

func (w *watchdog) begin(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.running[name]; ok {
		return false
	}
	w.running[name] = false
	return true
}

// end removes a running sequence and reports whether its caller still waits for the answer.
func (w *watchdog) end(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	abandoned := w.running[name]
	delete(w.running, name)
	return !abandoned
}

// abandon marks a sequence as abandoned and reports whether it still runs; if not, its answer is ready.
func (w *watchdog) abandon(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, ok := w.running[name]
	if ok {
		w.running[name] = true
	}
	return ok
}

type answer[T any] struct {
	value T
	err   error
}

// guard runs fn and waits for it no longer than the watchdog's timeout. fn must share nothing with its
// caller except its result, for it may outlive the call.
func guard[T any](ctx context.Context, w *watchdog, name string, fn func() (T, error)) (T, error) {
	return guardLate(ctx, w, name, fn, func(T) {})
}

// guardLate is guard for a sequence whose result must not get lost: late receives the result of one that
// succeeds after it was abandoned.
func guardLate[T any](ctx context.Context, w *watchdog, name string, fn func() (T, error), late func(T)) (T, error) {
	var zero T
	if err := ctx.Err(); err != nil {
		return zero, err
	}
	if !w.begin(name) {
		return zero, &Error{Call: name, Kind: KindTimeout, Text: "the driver has not answered an earlier call"}
	}
	done := make(chan answer[T], 1)
	go func() {
		v, err := fn()
		switch there := w.end(name); { // before sending, so that the caller may start the next at once
		case there:
			done <- answer[T]{v, err}
		case err == nil:
			late(v)
		}
	}()
	timer := w.clock.NewTimer(w.timeout)
	defer timer.Stop()
	select {
	case a := <-done:
		return a.value, a.err
	case <-ctx.Done():
		if w.abandon(name) {
			return zero, ctx.Err()
		}
	case <-timer.C():
		if w.abandon(name) {
			return zero, &Error{Call: name, Kind: KindTimeout, Text: fmt.Sprintf("the driver did not answer within %s", w.timeout)}
		}
	}
	a := <-done // it ended at the last moment
	return a.value, a.err
}
