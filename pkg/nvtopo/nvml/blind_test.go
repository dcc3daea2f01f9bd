// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/internal/testkit"
)

func noSet() error { return &Error{Call: "nvmlEventSetCreate", Text: "Unknown Error"} }

// tells waits until a reading reports exactly these problems about events.
func (w *watch) tells(t *testing.T, when string, want ...string) {
	t.Helper()
	var got []string
	defer func() {
		if t.Failed() {
			t.Logf("the last reading said %q of events, want %q", got, want)
		}
	}()
	testkit.Soon(t, when+" a reading that says so", func() bool {
		got = w.read(t)
		return cmp.Equal(want, got)
	})
}

// TestMissingEventsNotice: a reading reports that no events are received.
func TestMissingEventsNotice(t *testing.T) {
	tests := map[string]struct {
		err  error
		want string
	}{
		"the driver makes no event set": {noSet(), "no events can be watched: nvmlEventSetCreate: Unknown Error"},
		"the driver has no event sets":  {notSupported("nvmlEventSetCreate"), "no events can be watched: nvmlEventSetCreate: Not Supported"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := watchOf(t, 2, func(l *fakeLib) { l.setErr = tc.err })
			if diff := cmp.Diff(Event{}, receive(t, w.events)); diff != "" {
				t.Errorf("the event that asks for a reading (-want,+got):\n%s", diff)
			}
			w.tells(t, "while it lasts", tc.want)
			w.lib.set(func() { w.lib.setErr = nil })
			retried(t, w.lib, w.Discoverer, w.clk)
			w.watches(t, "after it", "GPU-00", "GPU-01")
			w.tells(t, "after it")
			w.stop()
			w.lib.quiet(t)
		})
	}
}

// TestLateDriver: a driver that comes late is watched at once.
func TestLateDriver(t *testing.T) {
	w := watchOf(t, 2, func(l *fakeLib) {
		l.initErr = &Error{Call: "nvmlInit", Kind: KindNoDriver, Text: "Driver Not Loaded"}
	})
	testkit.Soon(t, "the first attempt", w.clk.HasWaiters)
	if _, _, err := w.Graph(t.Context()); !IsNoDriver(err) {
		t.Fatalf("error %v, want one of kind no driver", err)
	}
	w.lib.set(func() { w.lib.initErr = nil })
	if told := w.read(t); len(told) > 0 {
		t.Errorf("the first reading says %q", told)
	}
	w.watches(t, "without a pause", "GPU-00", "GPU-01")
	w.raise(t, "GPU-01", 79)
	w.stop()
	w.lib.quiet(t)
}

// TestBrokenSetNotice: a broken set is reported until it is replaced.
func TestBrokenSetNotice(t *testing.T) {
	w := watchOf(t, 2, func(*fakeLib) {})
	w.read(t)
	w.waited(t)
	offer(t, w.lib.eventErr, lost("nvmlEventSetWait"))
	receive(t, w.events)
	w.tells(t, "when it broke", "no events can be watched: nvmlEventSetWait: GPU is lost")
	retried(t, w.lib, w.Discoverer, w.clk)
	w.tells(t, "when it is made anew")
	w.stop()
	w.lib.quiet(t)
}

// TestUnwatchableGPUNotice: a GPU that cannot be added to the watch is reported.
func TestUnwatchableGPUNotice(t *testing.T) {
	w := watchOf(t, 3, func(l *fakeLib) { l.gpus[2].openErr = lost("nvmlDeviceGetHandleByIndex") })
	w.watches(t, "at first", "GPU-00", "GPU-01")
	w.lib.set(func() { w.lib.gpus[2].openErr, w.lib.setErr = nil, noSet() })
	w.read(t)
	w.waited(t)
	w.tells(t, "while no further set is made", "GPU-02: its events cannot be watched: nvmlEventSetCreate: Unknown Error")
	w.raise(t, "GPU-00", 94)
	w.lib.set(func() { w.lib.setErr = nil })
	w.later(t, watchRetry+time.Second)
	w.watches(t, "after it", "GPU-00", "GPU-01", "GPU-02")
	w.tells(t, "after it")
	w.stop()
	w.lib.quiet(t)
}

// TestLateGPU: a late GPU without events is no problem.
func TestLateGPU(t *testing.T) {
	w := watchOf(t, 3, func(l *fakeLib) {
		l.gpus[2].openErr, l.gpus[2].regErr = lost("nvmlDeviceGetHandleByIndex"), notSupported("nvmlDeviceRegisterEvents")
	})
	w.watches(t, "at first", "GPU-00", "GPU-01")
	w.lib.set(func() { w.lib.gpus[2].openErr = nil })
	w.read(t)
	w.waited(t)
	if told := w.read(t); len(told) > 0 {
		t.Errorf("problems: %q", told)
	}
	w.stop()
	w.lib.quiet(t)
}
