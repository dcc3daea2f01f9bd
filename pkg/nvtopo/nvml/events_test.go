// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nvtopo/nvtopo/internal/testkit"
)

// watch is a watch of events that a test can end.
type watch struct {
	*Discoverer
	lib    *fakeLib
	clk    *clocktesting.FakeClock
	events <-chan Event
	stop   context.CancelFunc
}

// watchOf watches n GPUs, of which arrange may have changed some.
func watchOf(t *testing.T, n int, arrange func(l *fakeLib)) *watch {
	t.Helper()
	lib, s := h100(t, n)
	lib.events, lib.eventErr = make(chan RawEvent), make(chan error)
	arrange(lib)
	w := &watch{lib: lib, clk: clocktesting.NewFakeClock(time.Unix(1000, 0))}
	w.Discoverer = New(lib, s.root, Options{Clock: w.clk})
	ctx, cancel := context.WithCancel(t.Context())
	w.stop = cancel
	w.events = w.WatchEvents(ctx)
	return w
}

// offer sends a value to the goroutine that waits for events.
func offer[T any](t *testing.T, to chan<- T, v T) {
	t.Helper()
	select {
	case to <- v:
	case <-time.After(2 * time.Minute):
		t.Fatalf("nobody waited for %v", v)
	}
}

// raise has the driver raise an Xid and waits for the event.
func (w *watch) raise(t *testing.T, gpu string, xid uint64) {
	t.Helper()
	offer(t, w.lib.events, RawEvent{UUID: gpu, Xid: xid})
	if diff := cmp.Diff(Event{UUID: gpu, Xid: xid}, receive(t, w.events)); diff != "" {
		t.Fatalf("event (-want,+got):\n%s", diff)
	}
}

// abandonReading takes a reading and ends its context when it hangs. The clock, which
// would end the calls of the watch too, stands still.
func (w *watch) abandonReading(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	others, ended := w.lib.blocked(), make(chan error)
	go func() {
		_, _, err := w.Graph(ctx)
		ended <- err
	}()
	testkit.Soon(t, "the reading to hang", func() bool { return w.lib.blocked() > others })
	cancel()
	if err := <-ended; err == nil {
		t.Fatal("a reading ended that hangs")
	}
}

// hang abandons a reading that a GPU hangs in.
func (w *watch) hang(t *testing.T, gpu int) (end func()) {
	t.Helper()
	release := make(chan struct{})
	w.lib.set(func() { w.lib.gpus[gpu].hang = release })
	w.abandonReading(t)
	return func() {
		w.lib.set(func() { w.lib.gpus[gpu].hang = nil })
		close(release)
		testkit.Soon(t, "the call to end", func() bool { return !w.dog.stuck() })
	}
}

// waited waits until a call that began after now has waited for events.
func (w *watch) waited(t *testing.T) {
	t.Helper()
	count := func() int {
		w.lib.mu.Lock()
		defer w.lib.mu.Unlock()
		return w.lib.waits
	}
	before := count()
	testkit.Soon(t, "the watch to go on", func() bool { return count() >= before+2 })
}

// retried advances the clock past the pause after which a broken event set is replaced. The timer is
// known not to be of a call because no call is in progress.
func retried(t *testing.T, lib *fakeLib, d *Discoverer, clk *clocktesting.FakeClock) {
	t.Helper()
	testkit.Soon(t, "a new event set", func() bool {
		d.dog.mu.Lock()
		defer d.dog.mu.Unlock()
		for _, abandoned := range d.dog.running {
			if !abandoned {
				return lib.renewed()
			}
		}
		if lib.openSets() == 0 && clk.HasWaiters() {
			clk.Step(watchRetry)
		}
		return lib.renewed()
	})
}

// TestHangingGPUEvents: a hanging GPU hides no events of the others.
func TestHangingGPUEvents(t *testing.T) {
	w := watchOf(t, 4, func(*fakeLib) {})
	w.waited(t)
	end := w.hang(t, 3)
	w.waited(t)
	w.raise(t, "GPU-00", 94)
	w.raise(t, "GPU-01", 48)
	if got := w.lib.openSets(); got != 1 {
		t.Errorf("%d event sets, want the first one", got)
	}
	end()
	readFaults(t, w.Discoverer, "after the hang", []string{"GPU-00 unhealthy: Xid 94", "GPU-01 unhealthy: Xid 48"})
	testkit.Soon(t, "the references of the readings", func() bool { return w.lib.references() == 1 })
	w.stop()
	w.lib.quiet(t)
}

// TestEventSetReturn: an event set that breaks while a GPU hangs is given back.
func TestEventSetReturn(t *testing.T) {
	w := watchOf(t, 4, func(*fakeLib) {})
	w.waited(t)
	end := w.hang(t, 3)
	for range 3 {
		offer(t, w.lib.eventErr, lost("nvmlEventSetWait"))
		receive(t, w.events)
		testkit.Soon(t, "the set to be freed", func() bool { return w.lib.openSets() == 0 })
		retried(t, w.lib, w.Discoverer, w.clk)
	}
	w.raise(t, "GPU-00", 94)
	if got := w.lib.references(); got != 5 {
		t.Errorf("%d references, want those of the reading and three sets, which are owed, and that of the fourth", got)
	}
	end()
	readFaults(t, w.Discoverer, "after the hang", []string{"GPU-00 unhealthy: Xid 94"})
	testkit.Soon(t, "the references of the sets that broke", func() bool { return w.lib.references() == 1 })
	w.stop()
	w.lib.quiet(t)
}

// TestHangingWait: a wait that hangs keeps one set and its event.
func TestHangingWait(t *testing.T) {
	w := watchOf(t, 2, func(l *fakeLib) { l.events = make(chan RawEvent, 1) })
	w.waited(t)
	release := make(chan struct{})
	w.lib.set(func() { w.lib.waitHang = release })
	testkit.Soon(t, "the wait to hang", func() bool { return w.lib.blocked() > 0 })
	w.clk.Step(w.opts.Timeout)
	if diff := cmp.Diff(Event{}, receive(t, w.events)); diff != "" {
		t.Errorf("event (-want,+got):\n%s", diff)
	}
	for range 3 {
		testkit.Soon(t, "the retry timer", w.clk.HasWaiters)
		w.clk.Step(watchRetry)
	}
	if sets, refs := w.lib.openSets(), w.lib.references(); sets != 1 || refs != 1 {
		t.Errorf("%d event sets and %d references, want the one that is in use", sets, refs)
	}
	w.lib.events <- RawEvent{UUID: "GPU-01", Xid: 79} // the hanging call brings it
	w.lib.set(func() { w.lib.waitHang = nil })
	close(release)
	testkit.Soon(t, "the call to end", func() bool { return !w.dog.stuck() })
	testkit.Soon(t, "the mark", func() bool {
		g, _, err := w.Graph(t.Context())
		return err == nil && g.GPUs[1].Unhealthy == "Xid 79"
	})
	retried(t, w.lib, w.Discoverer, w.clk)
	w.raise(t, "GPU-00", 94)
	w.stop()
	w.lib.quiet(t)
}

// TestLateAnswer: an answer that comes too late is given back.
func TestLateAnswer(t *testing.T) {
	release := make(chan struct{})
	w := watchOf(t, 2, func(l *fakeLib) { l.initHang = release })
	testkit.Soon(t, "the watch to hang", func() bool { return w.lib.blocked() > 0 })
	w.abandonReading(t)
	w.stop()
	for range w.events {
		t.Error("an event nobody caused")
	}
	close(release)
	testkit.Soon(t, "the calls to end", func() bool { return !w.dog.stuck() })
	w.lib.quiet(t)
}
