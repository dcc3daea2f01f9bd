// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// faults lists the reasons why GPUs are not in full service, and links that are not NV18.
func faults(g *nvtopo.Graph) []string {
	var out []string
	for i := range g.GPUs {
		d := &g.GPUs[i]
		for state, why := range map[string]string{"unhealthy": d.Unhealthy, "degraded": d.Degraded} {
			if why != "" {
				out = append(out, d.UUID+" "+state+": "+why)
			}
		}
		if d.MIG {
			out = append(out, d.UUID+" partitioned")
		}
		for j := range i {
			if c := g.Link(i, j).Class.String(); c != "NV18" {
				out = append(out, g.GPUs[j].UUID+" "+d.UUID+" "+c)
			}
		}
	}
	return out
}

// readFaults takes a reading and compares its faults, in any order.
func readFaults(t *testing.T, d *Discoverer, when string, want []string) *nvtopo.Graph {
	t.Helper()
	g, problems, err := d.Graph(t.Context())
	if err != nil {
		t.Fatalf("%s: %v", when, err)
	}
	got := faults(g)
	slices.Sort(got)
	want = slices.Sorted(slices.Values(want))
	if diff := cmp.Diff(want, got); len(want)+len(got) > 0 && diff != "" {
		t.Errorf("%s (-want,+got):\n%s\nproblems: %s", when, diff, texts(problems))
	}
	return g
}

// TestFaultReadings: every fault is in the next reading and goes with its cause.
func TestFaultReadings(t *testing.T) {
	unknown := &Error{Call: "fabric registration", Text: "Insufficient Resources"}
	links := func(n int) []fakeLink {
		out := make([]fakeLink, 18)
		for i := range out {
			out[i] = fakeLink{up: i < n, remote: "00000000:05:00.0", kind: RemoteSwitch}
		}
		return out
	}
	pcie := func(gpu string) []string {
		return map[string][]string{
			"GPU-02": {"GPU-00 GPU-02 SYS", "GPU-01 GPU-02 SYS", "GPU-02 GPU-03 NODE"},
		}[gpu]
	}
	tests := map[string]struct {
		breakIt func(l *fakeLib, g *fakeGPU)
		mend    func(l *fakeLib, g *fakeGPU)
		want    []string
	}{
		"the GPU is lost": {
			breakIt: func(_ *fakeLib, g *fakeGPU) { g.openErr = lost("nvmlDeviceGetHandleByIndex") },
			mend:    func(_ *fakeLib, g *fakeGPU) { g.openErr = nil },
			want:    []string{"GPU-02 unhealthy: GPU is lost: GPU is lost"},
		},
		"the GPU is taken out": {
			breakIt: func(l *fakeLib, _ *fakeGPU) { l.gpus = slices.Delete(slices.Clone(l.gpus), 2, 3) },
			mend:    func(l *fakeLib, g *fakeGPU) { l.gpus = slices.Insert(l.gpus, 2, g) },
			want:    []string{"GPU-02 unhealthy: GPU is lost: the driver no longer lists it"},
		},
		"rows cannot be remapped, and the board is exchanged in place": {
			breakIt: func(_ *fakeLib, g *fakeGPU) { g.remap.Failed = true },
			mend:    func(_ *fakeLib, g *fakeGPU) { g.remap.Failed = false },
			want:    []string{"GPU-02 unhealthy: memory row remapping failed: the GPU must be replaced"},
		},
		"rows wait to be remapped, which keeps nobody from the GPU": {
			breakIt: func(_ *fakeLib, g *fakeGPU) { g.remap.Pending = true },
			mend:    func(_ *fakeLib, g *fakeGPU) { g.remap.Pending = false },
		},
		"the driver wants a reset": {
			breakIt: func(_ *fakeLib, g *fakeGPU) { g.recovery = RecoveryReset },
			mend:    func(_ *fakeLib, g *fakeGPU) { g.recovery = RecoveryNone },
			want:    []string{"GPU-02 unhealthy: the driver asks for a GPU reset"},
		},
		"the driver wants the bus reset": {
			breakIt: func(_ *fakeLib, g *fakeGPU) { g.recovery = RecoveryBusReset },
			mend:    func(_ *fakeLib, g *fakeGPU) { g.recovery = RecoveryNone },
			want:    []string{"GPU-02 unhealthy: the driver asks for a GPU reset: of its PCIe bus"},
		},
		"the driver wants a reboot": {
			breakIt: func(_ *fakeLib, g *fakeGPU) { g.recovery = RecoverySystemReboot },
			mend:    func(_ *fakeLib, g *fakeGPU) { g.recovery = RecoveryNone },
			want:    []string{"GPU-02 unhealthy: the driver asks for a reboot of the node"},
		},
		"the driver wants what only a later one knows": {
			breakIt: func(_ *fakeLib, g *fakeGPU) { g.recovery = 23 },
			mend:    func(_ *fakeLib, g *fakeGPU) { g.recovery = RecoveryNone },
			want:    []string{"GPU-02 unhealthy: the driver asks for an action that is not known: 23"},
		},
		"the driver wants peer traffic drained": {
			breakIt: func(_ *fakeLib, g *fakeGPU) { g.recovery = RecoveryDrainP2P },
			mend:    func(_ *fakeLib, g *fakeGPU) { g.recovery = RecoveryNone },
			want:    []string{"GPU-02 degraded: the driver asks to drain peer traffic"},
		},
		"the fabric manager has not come to it yet": {
			breakIt: func(_ *fakeLib, g *fakeGPU) { g.fabric = Fabric{State: FabricInProgress} },
			mend:    func(_ *fakeLib, g *fakeGPU) { g.fabric = Fabric{State: FabricCompleted} },
			want:    append([]string{"GPU-02 unhealthy: NVSwitch fabric is not ready: registration is in progress"}, pcie("GPU-02")...),
		},
		"there is no fabric manager": {
			breakIt: func(_ *fakeLib, g *fakeGPU) { g.fabric = Fabric{State: FabricNotStarted} },
			mend:    func(_ *fakeLib, g *fakeGPU) { g.fabric = Fabric{State: FabricCompleted} },
			want:    append([]string{"GPU-02 unhealthy: NVSwitch fabric is not ready: registration has not started"}, pcie("GPU-02")...),
		},
		"a GPU in progress without active links waits for no fabric": {
			breakIt: func(_ *fakeLib, g *fakeGPU) { g.fabric, g.links = Fabric{State: FabricInProgress}, links(0) },
			mend:    func(_ *fakeLib, g *fakeGPU) { g.fabric, g.links = Fabric{State: FabricCompleted}, links(18) },
			want:    pcie("GPU-02"),
		},
		"the fabric registration fails": {
			breakIt: func(_ *fakeLib, g *fakeGPU) { g.fabric.Status = unknown },
			mend:    func(_ *fakeLib, g *fakeGPU) { g.fabric.Status = nil },
			want:    append([]string{"GPU-02 degraded: NVSwitch fabric registration failed: Insufficient Resources"}, pcie("GPU-02")...),
		},
		"the fabric state cannot be read": {
			breakIt: func(_ *fakeLib, g *fakeGPU) { g.errs["Fabric"] = unknown; g.fabric = Fabric{} },
			mend:    func(_ *fakeLib, g *fakeGPU) { delete(g.errs, "Fabric"); g.fabric = Fabric{State: FabricCompleted} },
			want:    append([]string{"GPU-02 degraded: NVSwitch fabric registration is not known"}, pcie("GPU-02")...),
		},
		"some of its links are down": {
			breakIt: func(_ *fakeLib, g *fakeGPU) { g.links = links(16) },
			mend:    func(_ *fakeLib, g *fakeGPU) { g.links = links(18) },
			want:    []string{"GPU-00 GPU-02 NV16", "GPU-01 GPU-02 NV16", "GPU-02 GPU-03 NV16"},
		},
		"all of its links are down": {
			breakIt: func(_ *fakeLib, g *fakeGPU) { g.links = links(0) },
			mend:    func(_ *fakeLib, g *fakeGPU) { g.links = links(18) },
			want:    pcie("GPU-02"),
		},
		"it is partitioned": {
			breakIt: func(_ *fakeLib, g *fakeGPU) { g.mig = true },
			mend:    func(_ *fakeLib, g *fakeGPU) { g.mig = false },
			want:    append([]string{"GPU-02 partitioned"}, pcie("GPU-02")...),
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			lib, s := h100(t, 4)
			d := New(lib, s.root, Options{})
			sick := lib.gpus[2]
			readFaults(t, d, "before", nil)
			tc.breakIt(lib, sick)
			readFaults(t, d, "at the next reading", tc.want)
			readFaults(t, d, "while it lasts", tc.want)
			tc.mend(lib, sick)
			readFaults(t, d, "after it is mended", nil)
		})
	}
}

// TestDirectLinkFailure: a direct link that fails changes its pair only.
func TestDirectLinkFailure(t *testing.T) {
	lib := machine(8, "Tesla V100-SXM2-16GB", 7, 3, halves(8))
	lib.directLinks(dgx1V)
	s := newTree(t)
	s.twoSockets()
	s.gpusOnSockets(8)
	d := New(lib, s.root, Options{})
	before, _, err := d.Graph(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	set := func(up bool) {
		for _, end := range []struct{ gpu, far int }{{0, 3}, {3, 0}} {
			for i := range lib.gpus[end.gpu].links {
				if l := &lib.gpus[end.gpu].links[i]; l.remote == lib.gpus[end.far].bus {
					l.up = up
					break // one of the pair's two
				}
			}
		}
	}
	set(false)
	after, problems, err := d.Graph(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range 8 {
		for j := range i {
			want := before.Link(i, j).Class.String()
			if i == 3 && j == 0 {
				want = "NV1"
			}
			if got := after.Link(i, j).Class.String(); got != want {
				t.Errorf("GPUs %d and %d are joined by %s, want %s", j, i, got, want)
			}
		}
	}
	if before.ClassKey() == after.ClassKey() {
		t.Error("the graph class is the same: its tables would be too")
	}
	if after.Healthy().Len() != 8 || after.Degraded() != 0 {
		t.Errorf("healthy %v, degraded %v: a link that is down is no fault of its GPUs", after.Healthy().Positions(), after.Degraded().Positions())
	}
	if !strings.Contains(texts(problems), "GPU-00: 1 of 6 NVLinks are down") {
		t.Errorf("problems: %s", texts(problems))
	}
	set(true)
	again, _, err := d.Graph(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if before.ClassKey() != again.ClassKey() {
		t.Error("the link is up again, and the graph is not the one before")
	}
}

func TestXidsByClass(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Unix(1000, 0))
	lib, s := h100(t, 2)
	lib.events, lib.eventErr = make(chan RawEvent), make(chan error)
	d := New(lib, s.root, Options{Clock: clk, IgnoreXids: []uint64{63, 79}})
	events := d.WatchEvents(t.Context())
	read := func(when string, want ...string) {
		t.Helper()
		g, _, err := d.Graph(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, faults(g)); diff != "" {
			t.Errorf("%s (-want,+got):\n%s", when, diff)
		}
	}
	for _, xid := range []uint64{63, 79, 45} {
		lib.events <- RawEvent{UUID: "GPU-00", Xid: xid} // as configured, and by the catalogue
	}
	lib.events <- RawEvent{UUID: "GPU-00", Xid: 154}
	if diff := cmp.Diff(Event{UUID: "GPU-00", Xid: 154}, receive(t, events)); diff != "" {
		t.Errorf("the first event that is worth a reading (-want,+got):\n%s", diff)
	}
	read("news of the recovery action are no fault")

	lib.events <- RawEvent{UUID: "GPU-01", Xid: 74}
	receive(t, events)
	read("an NVLink error", "GPU-01 degraded: NVLink error: Xid 74")
	lib.events <- RawEvent{UUID: "GPU-01", Xid: 119}
	receive(t, events)
	read("a worse one beside it", "GPU-01 unhealthy: Xid 119")
	clk.SetTime(clk.Now().Add(time.Minute))
	d.xids.record("GPU-01", d.classOf(149), 149, clk.Now()) // the clock's leap has broken the event set
	clk.SetTime(clk.Now().Add(4 * time.Minute))
	read("the worse one has been lifted", "GPU-01 degraded: NVLink error: Xid 149")
	clk.SetTime(clk.Now().Add(time.Minute))
	read("both are")
}

// TestResetLiftsXids: a reset lifts Xids where the driver cannot report the recovery action.
func TestResetLiftsXids(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Unix(1000, 0))
	lib, d, events := watching(t, clk)
	lib.gpus[1].errs["Recovery"] = notSupported("nvmlDeviceGetFieldValues")
	read := func(when string, want ...string) {
		t.Helper()
		g, _, err := d.Graph(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, faults(g)); diff != "" {
			t.Errorf("%s (-want,+got):\n%s", when, diff)
		}
	}
	lib.events <- RawEvent{UUID: "GPU-01", Xid: 48}
	receive(t, events)
	clk.SetTime(clk.Now().Add(time.Hour))
	read("an hour later", "GPU-01 unhealthy: Xid 48")
	lib.gpus[1].openErr = lost("nvmlDeviceGetHandleByIndex")
	read("during the reset", "GPU-01 unhealthy: GPU is lost: GPU is lost")
	lib.gpus[1].openErr = nil
	read("after the reset")
}

// TestLongGoneGPU: a GPU that is gone for long is forgotten.
func TestLongGoneGPU(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Unix(1000, 0))
	lib, s := h100(t, 4)
	d := New(lib, s.root, Options{Clock: clk, KeepLost: time.Hour})
	uuids := func() (out []string) {
		t.Helper()
		g, _, err := d.Graph(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for i := range g.GPUs {
			out = append(out, g.GPUs[i].UUID)
		}
		return out
	}
	all := lib.gpus
	full := []string{"GPU-00", "GPU-01", "GPU-02", "GPU-03"}
	step := func(when string, gpus []*fakeGPU, later time.Duration, want []string) {
		t.Helper()
		lib.gpus = gpus
		clk.SetTime(clk.Now().Add(later))
		if diff := cmp.Diff(want, uuids()); diff != "" {
			t.Errorf("%s (-want,+got):\n%s", when, diff)
		}
	}
	step("at first", all, 0, full)
	step("when it goes", all[:3], 0, full)
	step("just before the hour is over", all[:3], 59*time.Minute, full)
	step("when it is back", all, 0, full)
	step("when it goes again its hour begins", all[:3], 30*time.Minute, full)
	step("and lasts", all[:3], 59*time.Minute, full)
	step("after an hour", all[:3], time.Minute, full[:3])
	step("it can still come back", all, time.Minute, full)
}

// TestReplacedGPU: a GPU whose slot holds another one is dropped, after a restart of the exporter too;
// one whose slot is empty is lost.
func TestReplacedGPU(t *testing.T) {
	lib, s := h100(t, 4)
	spare := *lib.gpus[1]
	spare.uuid = "GPU-99"
	spare.bus = strings.ToLower(spare.bus) // written differently, and the same
	all := lib.gpus
	swapped := []*fakeGPU{all[0], &spare, all[2], all[3]}
	d := New(lib, s.root, Options{})
	read := func(when string, d *Discoverer, want ...string) *nvtopo.Graph {
		t.Helper()
		g, _, err := d.Graph(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for i := range g.GPUs {
			stable, _, _ := strings.Cut(g.GPUs[i].Unhealthy, ":")
			got = append(got, strings.TrimSpace(g.GPUs[i].UUID+" "+stable))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want,+got):\n%s", when, diff)
		}
		return g
	}
	read("at first", d, "GPU-00", "GPU-01", "GPU-02", "GPU-03")
	lib.gpus = []*fakeGPU{all[0], all[2], all[3]}
	lost := read("when one is taken out", d, "GPU-00", "GPU-02", "GPU-03", "GPU-01 GPU is lost")
	lib.gpus = swapped
	read("when another is in its slot", d, "GPU-00", "GPU-99", "GPU-02", "GPU-03")
	read("an exporter that starts then", New(lib, s.root, Options{Previous: lost}), "GPU-00", "GPU-99", "GPU-02", "GPU-03")
	lib.gpus = all
	read("when the first is back", d, "GPU-00", "GPU-01", "GPU-02", "GPU-03")
	lib.gpus = all[:3]
	read("a slot that is empty", d, "GPU-00", "GPU-01", "GPU-02", "GPU-03 GPU is lost")
}
