// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/internal/testkit"
)

// later lets time pass in steps that no call takes for its own.
func (w *watch) later(t *testing.T, by time.Duration) {
	t.Helper()
	for step := w.opts.Timeout / 2; by > 0; by -= step {
		w.clk.Step(min(step, by))
		w.waited(t)
	}
}

// watches waits until exactly these GPUs are watched, by one event set.
func (w *watch) watches(t *testing.T, when string, want ...string) {
	t.Helper()
	testkit.Soon(t, when+" the events of "+strings.Join(want, ", "), func() bool {
		return w.lib.openSets() == 1 && slices.Equal(want, w.lib.watched())
	})
}

// read takes a reading and returns its problems about events.
func (w *watch) read(t *testing.T) (unwatched []string) {
	t.Helper()
	_, problems, err := w.Graph(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.Contains(p.Text, "events") {
			unwatched = append(unwatched, p.String())
		}
	}
	return unwatched
}

func refusal(kind ErrorKind, text string) error {
	return &Error{Call: "nvmlDeviceRegisterEvents", Kind: kind, Text: text}
}

// TestUnsubscribableGPUEvents: a GPU that cannot be subscribed hides no events of the others.
func TestUnsubscribableGPUEvents(t *testing.T) {
	tests := map[string]struct {
		errs        map[int]error // GPU -> why it is refused
		wantWatched []string
		wantTold    []string
	}{
		"one says that it is lost": {
			errs:        map[int]error{2: refusal(KindLost, "GPU is lost")},
			wantWatched: []string{"GPU-00", "GPU-01", "GPU-03"},
			wantTold:    []string{"GPU-02: its events cannot be watched: nvmlDeviceRegisterEvents: GPU is lost"},
		},
		"two, the first of them for a reason that is not known": {
			errs:        map[int]error{0: refusal(KindOther, "Unknown Error"), 3: refusal(KindLost, "Reset required")},
			wantWatched: []string{"GPU-01", "GPU-02"},
			wantTold: []string{
				"GPU-00: its events cannot be watched: nvmlDeviceRegisterEvents: Unknown Error",
				"GPU-03: its events cannot be watched: nvmlDeviceRegisterEvents: Reset required",
			},
		},
		"one that has no events leaves the set good, and is no problem": {
			errs:        map[int]error{1: refusal(KindNotSupported, "Not Supported")},
			wantWatched: []string{"GPU-00", "GPU-02", "GPU-03"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := watchOf(t, 4, func(l *fakeLib) {
				for i, err := range tc.errs {
					l.gpus[i].regErr = err
				}
			})
			w.watches(t, "at first", tc.wantWatched...)
			w.raise(t, tc.wantWatched[0], 94)
			for range 2 {
				if diff := cmp.Diff(tc.wantTold, w.read(t)); diff != "" {
					t.Errorf("problems (-want,+got):\n%s", diff)
				}
			}
			if len(tc.wantTold) > 0 {
				w.later(t, watchRetry)
				w.waited(t)
				w.watches(t, "when it is refused again", tc.wantWatched...)
				w.lib.set(func() {
					for i := range tc.errs {
						w.lib.gpus[i].regErr = nil
					}
				})
				w.later(t, watchRetry)
				w.watches(t, "when it is not refused any more", "GPU-00", "GPU-01", "GPU-02", "GPU-03")
				if told := w.read(t); len(told) > 0 {
					t.Errorf("problems when all are watched: %v", told)
				}
			}
			testkit.Soon(t, "the references of the other sets", func() bool { return w.lib.references() == 1 })
			w.stop()
			w.lib.quiet(t)
		})
	}
}

// TestHangingSubscription: a GPU that hangs when it is subscribed hides no events of the others.
func TestHangingSubscription(t *testing.T) {
	tests := map[string]struct {
		hang func(g *fakeGPU, until chan struct{})
		// wantSets is how many there are while it hangs: one is in use by the call.
		wantSets int
	}{
		"in its registration": {hang: func(g *fakeGPU, until chan struct{}) { g.regHang = until }, wantSets: 2},
		"before it":           {hang: func(g *fakeGPU, until chan struct{}) { g.hang = until }, wantSets: 1},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			release := make(chan struct{})
			w := watchOf(t, 4, func(l *fakeLib) { tc.hang(l.gpus[2], release) })
			testkit.Soon(t, "the GPU to hang", func() bool { return w.lib.blocked() > 0 })
			w.clk.Step(w.opts.Timeout)
			w.waited(t)
			w.raise(t, "GPU-03", 94)
			if got := w.lib.openSets(); got != tc.wantSets {
				t.Errorf("%d event sets, want %d", got, tc.wantSets)
			}
			w.lib.set(func() { w.lib.gpus[2].regHang, w.lib.gpus[2].hang = nil, nil })
			close(release)
			testkit.Soon(t, "the call to end", func() bool { return !w.dog.stuck() })
			w.read(t)
			w.later(t, watchRetry)
			w.watches(t, "after the hang", "GPU-00", "GPU-01", "GPU-02", "GPU-03")
			w.stop()
			w.lib.quiet(t)
		})
	}
}

// TestReturnedGPU: a GPU that returns is subscribed.
func TestReturnedGPU(t *testing.T) {
	all := []string{"GPU-00", "GPU-01", "GPU-02", "GPU-03"}
	var added *fakeGPU
	tests := map[string]struct {
		arrange   func(l *fakeLib)
		wantFirst []string // who is watched then
		fail      func(l *fakeLib)
		mend      func(l *fakeLib)
	}{
		"that was lost when the watch began": {
			arrange:   func(l *fakeLib) { l.gpus[2].openErr = lost("nvmlDeviceGetHandleByIndex") },
			wantFirst: []string{"GPU-00", "GPU-01", "GPU-03"},
			mend:      func(l *fakeLib) { l.gpus[2].openErr = nil },
		},
		"that was refused when the watch began, and is reset": {
			arrange:   func(l *fakeLib) { l.gpus[2].regErr = refusal(KindLost, "Reset required") },
			wantFirst: []string{"GPU-00", "GPU-01", "GPU-03"},
			fail:      func(l *fakeLib) { l.gpus[2].openErr = lost("nvmlDeviceGetHandleByIndex") },
			mend:      func(l *fakeLib) { l.gpus[2].openErr, l.gpus[2].regErr = nil, nil },
		},
		"that is new": {
			arrange:   func(l *fakeLib) { added, l.gpus = l.gpus[3], l.gpus[:3] },
			wantFirst: all[:3],
			mend:      func(l *fakeLib) { l.gpus = append(slices.Clone(l.gpus), added) },
		},
		"that was watched, and is another to the driver after its reset": {
			arrange:   func(*fakeLib) {},
			wantFirst: all,
			fail:      func(l *fakeLib) { l.gpus[2].openErr = lost("nvmlDeviceGetHandleByIndex") },
			mend: func(l *fakeLib) {
				l.gpus[2].openErr = nil
				for _, e := range l.sets {
					delete(e.gpus, "GPU-02")
				}
			},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := watchOf(t, 4, tc.arrange)
			w.watches(t, "at first", tc.wantFirst...)
			w.read(t)
			w.waited(t)
			if tc.fail != nil {
				w.lib.set(func() { tc.fail(w.lib) })
				w.read(t)
				w.waited(t)
			}
			w.lib.set(func() { tc.mend(w.lib) })
			w.read(t) // it is published healthy now
			w.watches(t, "without a pause", all...)
			w.raise(t, "GPU-02", 79)
			g, _, err := w.Graph(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if got := g.GPUs[2].Unhealthy; got != "Xid 79" {
				t.Errorf("GPU-02 is %q, want its Xid", got)
			}
			w.stop()
			w.lib.quiet(t)
		})
	}
}

// TestUnchangedReadings: readings that find nothing new make no event set.
func TestUnchangedReadings(t *testing.T) {
	w := watchOf(t, 4, func(l *fakeLib) { l.gpus[1].regErr = notSupported("nvmlDeviceRegisterEvents") })
	for range 3 {
		w.read(t)
		w.later(t, watchRetry)
	}
	w.lib.mu.Lock()
	made := w.lib.made
	w.lib.mu.Unlock()
	if made != 1 {
		t.Errorf("%d event sets were made, want one", made)
	}
	w.stop()
	w.lib.quiet(t)
}
