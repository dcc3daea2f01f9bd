// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// health lists "UUID index reason" of every GPU.
func health(g *nvtopo.Graph) []string {
	var out []string
	for i := range g.GPUs {
		d := &g.GPUs[i]
		out = append(out, strings.TrimSpace(d.UUID+" "+string(rune('0'+d.Index))+" "+d.Unhealthy))
	}
	return out
}

func h100(t *testing.T, n int) (*fakeLib, tree) {
	t.Helper()
	l := machine(n, "NVIDIA H100 80GB HBM3", 9, 5, halves(n))
	l.switchLinks(18, RemoteSwitch, "00000000:05:00.0")
	s := newTree(t)
	s.twoSockets()
	s.gpusOnSockets(n)
	return l, s
}

// TestFaultyGPU: one faulty GPU degrades that GPU only.
func TestFaultyGPU(t *testing.T) {
	tests := map[string]struct {
		breakIt    func(l *fakeLib)
		wantHealth []string
	}{
		"its handle says lost": {
			breakIt:    func(l *fakeLib) { l.gpus[2].openErr = lost("nvmlDeviceGetHandleByIndex") },
			wantHealth: []string{"GPU-00 0", "GPU-01 1", "GPU-02 2 GPU is lost: GPU is lost", "GPU-03 3"},
		},
		"its handle says unknown error": {
			breakIt: func(l *fakeLib) {
				l.gpus[2].openErr = &Error{Call: "nvmlDeviceGetHandleByIndex", Text: "Unknown Error"}
			},
			wantHealth: []string{"GPU-00 0", "GPU-01 1", "GPU-02 2 GPU cannot be read: Unknown Error", "GPU-03 3"},
		},
		"it is hidden": {
			breakIt: func(l *fakeLib) {
				l.gpus[2].openErr = &Error{Call: "nvmlDeviceGetHandleByIndex", Kind: KindNoPermission, Text: "Insufficient Permissions"}
			},
			wantHealth: []string{"GPU-00 0", "GPU-01 1", "GPU-02 2 no permission to open the GPU", "GPU-03 3"},
		},
		"it has no power": {
			breakIt: func(l *fakeLib) {
				l.gpus[2].openErr = &Error{Call: "nvmlDeviceGetHandleByIndex", Kind: KindUnavailable, Text: "Insufficient External Power"}
			},
			wantHealth: []string{"GPU-00 0", "GPU-01 1", "GPU-02 2 GPU is not available: Insufficient External Power", "GPU-03 3"},
		},
		"it is lost while its memory is read": {
			breakIt:    func(l *fakeLib) { l.gpus[2].errs["MemoryBytes"] = lost("nvmlDeviceGetMemoryInfo") },
			wantHealth: []string{"GPU-00 0", "GPU-01 1", "GPU-02 2 GPU is lost: GPU is lost", "GPU-03 3"},
		},
		"it is lost while its links are read": {
			breakIt:    func(l *fakeLib) { l.gpus[2].errs["NVLinkActive7"] = lost("nvmlDeviceGetNvLinkState") },
			wantHealth: []string{"GPU-00 0", "GPU-01 1", "GPU-02 2 GPU is lost: GPU is lost", "GPU-03 3"},
		},
		"it is no longer listed and the indices shift": {
			breakIt:    func(l *fakeLib) { l.gpus = slices.Delete(l.gpus, 2, 3) },
			wantHealth: []string{"GPU-00 0", "GPU-01 1", "GPU-03 2", "GPU-02 3 GPU is lost: the driver no longer lists it"},
		},
		"the last one is no longer listed and keeps its index": {
			breakIt:    func(l *fakeLib) { l.gpus = l.gpus[:3] },
			wantHealth: []string{"GPU-00 0", "GPU-01 1", "GPU-02 2", "GPU-03 3 GPU is lost: the driver no longer lists it"},
		},
		"its rows cannot be remapped": {
			breakIt: func(l *fakeLib) { l.gpus[2].remap.Failed = true },
			wantHealth: []string{
				"GPU-00 0", "GPU-01 1", "GPU-02 2 memory row remapping failed: the GPU must be replaced", "GPU-03 3",
			},
		},
		"the driver wants a reset": {
			breakIt:    func(l *fakeLib) { l.gpus[2].recovery = RecoveryDrainAndReset },
			wantHealth: []string{"GPU-00 0", "GPU-01 1", "GPU-02 2 the driver asks for a GPU reset", "GPU-03 3"},
		},
		"a call fails that is not vital": {
			breakIt: func(l *fakeLib) {
				l.gpus[2].errs["Name"] = &Error{Call: "nvmlDeviceGetName", Text: "Unknown Error"}
				l.gpus[2].errs["RowRemap"] = &Error{Call: "nvmlDeviceGetRemappedRows", Text: "Unknown Error"}
			},
			wantHealth: []string{"GPU-00 0", "GPU-01 1", "GPU-02 2", "GPU-03 3"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			lib, s := h100(t, 4)
			d := New(lib, s.root, Options{})
			before, _, err := d.Graph(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			tc.breakIt(lib)
			after, problems, err := d.Graph(t.Context())
			if err != nil {
				t.Fatalf("one faulty GPU failed the node: %v", err)
			}
			if diff := cmp.Diff(tc.wantHealth, health(after)); diff != "" {
				t.Errorf("health (-want,+got):\n%s\nproblems: %s", diff, texts(problems))
			}
			if diff := cmp.Diff(uniform(4, "NV18"), matrix(after)); diff != "" {
				t.Errorf("links must stay as they were (-want,+got):\n%s", diff)
			}
			sameRecords(t, before, after)
			// The fault outlives a second reading.
			again, _, err := d.Graph(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.wantHealth, health(again)); diff != "" {
				t.Errorf("health at the next reading (-want,+got):\n%s", diff)
			}
			// A restarted exporter that remembers the graph reports the same.
			fresh, _ := discover(t, lib, s.root, Options{Previous: again})
			if diff := cmp.Diff(tc.wantHealth, health(fresh)); diff != "" {
				t.Errorf("health after a restart (-want,+got):\n%s", diff)
			}
		})
	}
}

// sameRecords compares all of a GPU but health and index by UUID.
func sameRecords(t *testing.T, before, after *nvtopo.Graph) {
	t.Helper()
	want, got := map[string]nvtopo.GPU{}, map[string]nvtopo.GPU{}
	for _, g := range before.GPUs {
		g.Index = 0
		want[g.UUID] = g
	}
	for _, g := range after.GPUs {
		g.Index, g.Unhealthy = 0, ""
		got[g.UUID] = g
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("records (-before,+after):\n%s", diff)
	}
}

// TestLostGPU: a lost GPU without a past is left out.
func TestLostGPU(t *testing.T) {
	lib, s := h100(t, 4)
	lib.gpus[1].openErr = lost("nvmlDeviceGetHandleByIndex")
	g, problems := discover(t, lib, s.root, Options{})
	if diff := cmp.Diff([]string{"GPU-00 0", "GPU-02 2", "GPU-03 3"}, health(g)); diff != "" {
		t.Errorf("health (-want,+got):\n%s", diff)
	}
	if !strings.Contains(texts(problems), "GPU 1: left out, its UUID is not known: GPU is lost") {
		t.Errorf("problems: %s", texts(problems))
	}
}

// TestGPURecovery: a GPU that comes back is healthy again.
func TestGPURecovery(t *testing.T) {
	lib, s := h100(t, 4)
	d := New(lib, s.root, Options{})
	want, _, err := d.Graph(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	all := lib.gpus
	lib.gpus = all[1:]
	if _, _, err := d.Graph(t.Context()); err != nil {
		t.Fatal(err)
	}
	lib.gpus = all
	got, problems, err := d.Graph(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(health(want), health(got)); diff != "" || len(problems) != 0 {
		t.Errorf("health (-want,+got):\n%s\nproblems: %s", diff, texts(problems))
	}
}

// TestHangingGPUCutOff: a hanging GPU is cut off.
func TestHangingGPUCutOff(t *testing.T) {
	lib, s := h100(t, 4)
	clk := clocktesting.NewFakeClock(time.Unix(1000, 0)) // no call of a busy machine is too slow for it
	d := New(lib, s.root, Options{Clock: clk})
	if _, _, err := d.Graph(t.Context()); err != nil {
		t.Fatal(err)
	}
	release := make(chan struct{})
	lib.set(func() { lib.gpus[1].hang = release })
	want := []string{"GPU-00 0", "GPU-01 1 the driver does not answer for this GPU", "GPU-02 2", "GPU-03 3"}
	for i := range 3 {
		var g *nvtopo.Graph
		ended := make(chan error, 1)
		go func() {
			var err error
			g, _, err = d.Graph(t.Context())
			ended <- err
		}()
		if i == 0 { // the later readings do not wait for the call, which still hangs
			testkit.Soon(t, "the call to hang", func() bool { return lib.blocked() == 1 && clk.HasWaiters() })
			clk.Step(d.opts.Timeout)
		}
		if err := receive(t, ended); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, health(g)); diff != "" {
			t.Errorf("health (-want,+got):\n%s", diff)
		}
	}
	if got := lib.references(); got != 3 {
		t.Errorf("%d references, want the 3 that must not be given up under a call", got)
	}
	close(release)
	// The abandoned call ends on its own; then the GPU is read as before.
	testkit.Soon(t, "the call to end", func() bool { return !d.dog.stuck() })
	g, _, err := d.Graph(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if g.Healthy().Len() != 4 {
		t.Errorf("health after the driver woke: %v", health(g))
	}
	lib.quiet(t)
}

// TestLibraryMismatch: a library that does not fit the driver fails the reading.
func TestLibraryMismatch(t *testing.T) {
	mismatch := func(call string) error {
		return &Error{Call: call, Kind: KindMismatch, Text: "Driver/library version mismatch"}
	}
	for name, breakIt := range map[string]func(l *fakeLib){
		"when it is initialised": func(l *fakeLib) { l.initErr = mismatch("nvmlInit") },
		"when a GPU is opened":   func(l *fakeLib) { l.gpus[1].openErr = mismatch("nvmlDeviceGetHandleByIndex") },
	} {
		t.Run(name, func(t *testing.T) {
			lib, s := h100(t, 2)
			breakIt(lib)
			if g, _, err := New(lib, s.root, Options{}).Graph(t.Context()); !IsMismatch(err) {
				t.Errorf("graph %v, error %v, want one of kind mismatch: it is no fault of a GPU", g, err)
			}
			lib.quiet(t)
		})
	}
}

func watching(t *testing.T, clk *clocktesting.FakeClock) (*fakeLib, *Discoverer, <-chan Event) {
	t.Helper()
	lib, s := h100(t, 2)
	lib.events, lib.eventErr = make(chan RawEvent), make(chan error)
	d := New(lib, s.root, Options{Clock: clk})
	return lib, d, d.WatchEvents(t.Context())
}

func receive[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(2 * time.Minute):
		var none T
		t.Fatalf("no %T within two minutes", none)
		return none
	}
}

// TestXidMarks: Xids mark their GPU until the driver is content.
func TestXidMarks(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Unix(1000, 0))
	lib, d, events := watching(t, clk)
	for _, xid := range []uint64{13, 31, 43, 45, 68, 109} {
		lib.events <- RawEvent{UUID: "GPU-00", Xid: xid} // application faults
	}
	lib.events <- RawEvent{UUID: "GPU-01", Xid: 94}
	if diff := cmp.Diff(Event{UUID: "GPU-01", Xid: 94}, receive(t, events)); diff != "" {
		t.Fatalf("event (-want,+got):\n%s", diff)
	}
	expect := func(when string, want []string) {
		t.Helper()
		g, _, err := d.Graph(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, health(g)); diff != "" {
			t.Errorf("%s (-want,+got):\n%s", when, diff)
		}
	}
	marked, clear := []string{"GPU-00 0", "GPU-01 1 Xid 94"}, []string{"GPU-00 0", "GPU-01 1"}
	expect("after the Xid", marked)
	clk.SetTime(clk.Now().Add(4 * time.Minute))
	expect("before the hold is over", marked)
	lib.gpus[1].errs["Recovery"] = notSupported("Recovery")
	clk.SetTime(clk.Now().Add(time.Hour))
	expect("while the driver cannot say", marked)
	delete(lib.gpus[1].errs, "Recovery")
	lib.gpus[1].recovery = RecoveryReset
	expect("while the driver wants a reset", []string{"GPU-00 0", "GPU-01 1 the driver asks for a GPU reset"})
	lib.gpus[1].recovery = RecoveryNone
	expect("when the driver wants nothing", clear)
}

// TestBrokenEventSet: a broken event set causes a reading and is replaced.
func TestBrokenEventSet(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Unix(1000, 0))
	lib, d, events := watching(t, clk)
	lib.eventErr <- lost("nvmlEventSetWait")
	if diff := cmp.Diff(Event{}, receive(t, events)); diff != "" {
		t.Errorf("event (-want,+got):\n%s", diff)
	}
	testkit.Soon(t, "the set to be freed", func() bool { return lib.openSets() == 0 && lib.references() == 0 })
	retried(t, lib, d, clk)
	lib.events <- RawEvent{UUID: "GPU-00"}
	if diff := cmp.Diff(Event{UUID: "GPU-00"}, receive(t, events)); diff != "" {
		t.Errorf("event from the new set (-want,+got):\n%s", diff)
	}
}

// TestWatchContext: Watch ends with its context and leaves nothing.
func TestWatchContext(t *testing.T) {
	tests := map[string]func(l *fakeLib){
		"while waiting":                func(*fakeLib) {},
		"without event support":        func(l *fakeLib) { l.events = nil },
		"without a GPU that has any":   func(l *fakeLib) { l.regErr = notSupported("nvmlDeviceRegisterEvents") },
		"when registration is refused": func(l *fakeLib) { l.regErr = &Error{Call: "nvmlDeviceRegisterEvents", Text: "Unknown Error"} },
	}
	for name, arrange := range tests {
		t.Run(name, func(t *testing.T) {
			lib, s := h100(t, 2)
			lib.events, lib.eventErr = make(chan RawEvent), make(chan error)
			arrange(lib)
			ctx, cancel := context.WithCancel(t.Context())
			events := New(lib, s.root, Options{}).WatchEvents(ctx)
			cancel()
			for range events {
				t.Error("an event nobody caused")
			}
			lib.quiet(t)
		})
	}
}
