// SPDX-License-Identifier: Apache-2.0

package fakedriver

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/nvml"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/nvml/live"
)

// library returns the path of the library that `make fakedriver` builds.
func library(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", "..", "..", "..", "bin", "fakedriver", LibraryName))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v; make fakedriver builds it", err)
	}
	return path
}

// load writes a machine of the catalogue and lets this process see it.
func load(t *testing.T, name string) (*Driver, *nvtopo.Graph) {
	t.Helper()
	m, err := machine.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	g, err := m.GraphFor("node-1")
	if err != nil {
		t.Fatal(err)
	}
	d, err := Write(t.TempDir(), g, m.PCIeGen)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range d.Env() {
		key, value, _ := strings.Cut(e, "=")
		t.Setenv(key, value)
	}
	return d, g
}

// known returns the part of a graph that a driver and a kernel report too. Left out are: the levels of an
// adapter whose NUMA node is not known; NODE or SYS of one on a GPU's NUMA node, since the path between
// their host bridges is never seen to be as long as between sockets; and the PCIe level of a GPU with
// NVLink, which the catalogue does not always have.
func known(t *testing.T, g, other *nvtopo.Graph) *nvtopo.Graph {
	t.Helper()
	links := map[[2]int]nvtopo.Link{}
	for i := range g.GPUs {
		for j := range i {
			l := g.Link(i, j)
			if l.PCIe == nvtopo.PCIeUnknown || other.Link(i, j).PCIe == nvtopo.PCIeUnknown {
				l.PCIe = nvtopo.PCIeUnknown
			}
			links[[2]int{i, j}] = l
		}
	}
	var nics []nvtopo.NIC
	for _, n := range g.NICs {
		if n.NUMANode == nvtopo.UnknownNUMA {
			continue
		}
		n.Levels = slices.Clone(n.Levels)
		for i := range g.GPUs {
			if n.Levels[i] == nvtopo.PCIeSYS && g.GPUs[i].NUMANode == n.NUMANode {
				n.Levels[i] = nvtopo.PCIeNODE
			}
		}
		nics = append(nics, n)
	}
	slices.SortFunc(nics, func(a, b nvtopo.NIC) int { return strings.Compare(a.Name, b.Name) }) // as sysfs lists them
	out, err := nvtopo.NewGraph(g.GPUs, g.NUMANodes, nics, links)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestCatalogueMachine: the machine that is read is that of the catalogue.
func TestCatalogueMachine(t *testing.T) {
	lib := live.New(library(t))
	for _, name := range machine.Names() {
		if m, err := machine.Lookup(name); err != nil || m.Resource != "" {
			continue // NVIDIA's driver drives no other vendor's
		}
		t.Run(name, func(t *testing.T) {
			d, want := load(t, name)
			got, problems, err := nvml.Discover(t.Context(), lib, d.Sysfs(), nvml.Options{})
			if err != nil || len(problems) > 0 {
				t.Fatalf("error %v, problems %v", err, problems)
			}
			if diff := cmp.Diff(known(t, want, got), known(t, got, want), cmp.AllowUnexported(nvtopo.Graph{})); diff != "" {
				t.Errorf("(-catalogue,+read):\n%s", diff)
			}
		})
	}
}

// opened initialises the library for the rest of the test.
func opened(t *testing.T, lib nvml.Library) {
	t.Helper()
	if err := lib.Init(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lib.Shutdown(); err != nil {
			t.Errorf("shut down: %v", err)
		}
	})
}

// TestFaults: faults come and go.
func TestFaults(t *testing.T) {
	d, _ := load(t, "dgx-a100")
	lib := live.New(library(t))
	opened(t, lib)
	dev, err := lib.Device(3)
	if err != nil {
		t.Fatal(err)
	}
	asked := func() error { _, err := dev.UUID(); return err }
	for name, tc := range map[string]struct {
		fault Fault
		call  func() error
		want  nvml.ErrorKind
	}{
		"a lost GPU says nothing":            {Lost(3), asked, nvml.KindLost},
		"a lost GPU cannot be opened":        {Lost(3), func() error { _, err := lib.Device(3); return err }, nvml.KindLost},
		"a GPU that is gone is not listed":   {Gone(7), func() error { _, err := lib.Device(7); return err }, nvml.KindInvalidArgument},
		"a call fails with a code":           {Fails("nvmlDeviceGetUUID", 3, NoPermission), asked, nvml.KindNoPermission},
		"a call about no GPU fails":          {Fails("nvmlEventSetCreate", AllGPUs, Unknown), func() error { _, err := lib.NewEventSet(); return err }, nvml.KindOther},
		"a driver that is not there":         {Fails("nvmlInit", AllGPUs, DriverNotLoaded), lib.Init, nvml.KindNoDriver},
		"a link that is not there":           {Lost(1), func() error { _, err := dev.NVLinkActive(12); return err }, nvml.KindInvalidArgument},
		"a feature the device has not":       {Fails("nvmlDeviceGetMigMode", 3, NotSupported), func() error { _, err := dev.MIGEnabled(); return err }, nvml.KindNotSupported},
		"a driver of another library":        {Fails("nvmlInit", AllGPUs, VersionMismatch), lib.Init, nvml.KindMismatch},
		"a fault of every GPU is this one's": {Lost(AllGPUs), asked, nvml.KindLost},
	} {
		t.Run(name, func(t *testing.T) {
			if err := d.Faults.Set(tc.fault); err != nil {
				t.Fatal(err)
			}
			if err := tc.call(); err == nil || nvml.KindOf(err) != tc.want {
				t.Errorf("error %v of kind %v, want kind %v", err, nvml.KindOf(err), tc.want)
			}
			if err := d.Faults.Set(); err != nil {
				t.Fatal(err)
			}
			if err := asked(); err != nil {
				t.Errorf("after it: %v", err)
			}
		})
	}
}

// TestLinkFailures: links go down.
func TestLinkFailures(t *testing.T) {
	d, _ := load(t, "dgx-a100")
	lib := live.New(library(t))
	opened(t, lib)
	dev, err := lib.Device(2)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		faults   []Fault
		up, down int
	}{
		"all are up":                  {nil, 12, 0},
		"one is down":                 {[]Fault{LinkDown(2, 5)}, 11, 1},
		"all are down":                {[]Fault{LinksDown(2)}, 0, 12},
		"another GPU's are down":      {[]Fault{LinksDown(3)}, 12, 0},
		"six that do not exist":       {[]Fault{PhantomLinks(2, 18)}, 12, 6},
		"one down, six that are none": {[]Fault{PhantomLinks(2, 18), LinkDown(2, 0)}, 11, 7},
	} {
		t.Run(name, func(t *testing.T) {
			if err := d.Faults.Set(tc.faults...); err != nil {
				t.Fatal(err)
			}
			up, down := 0, 0
			for l := range 36 {
				switch active, err := dev.NVLinkActive(l); {
				case err != nil:
				case active:
					up++
				default:
					down++
				}
			}
			if up != tc.up || down != tc.down {
				t.Errorf("%d up, %d down; want %d and %d", up, down, tc.up, tc.down)
			}
		})
	}
}

// TestPartitionedGPU: a partitioned GPU has its slices.
func TestPartitionedGPU(t *testing.T) {
	d, g := load(t, "dgx-h100")
	lib := live.New(library(t))
	opened(t, lib)
	dev, err := lib.Device(2)
	if err != nil {
		t.Fatal(err)
	}
	if slices, err := dev.Slices(); err != nil || len(slices) > 0 {
		t.Errorf("a whole GPU has slices %v, %v", slices, err)
	}
	if err := d.Faults.Set(Partitioned(2, 3)); err != nil {
		t.Fatal(err)
	}
	if mig, err := dev.MIGEnabled(); err != nil || !mig {
		t.Errorf("MIG mode %v, %v", mig, err)
	}
	slices, err := dev.Slices()
	if err != nil || len(slices) != 3 {
		t.Fatalf("slices %v, %v, want 3", slices, err)
	}
	seen := map[string]bool{}
	for _, s := range slices {
		seen[s.UUID] = true
		// The driver reports a slice's memory in MiB.
		if want := g.GPUs[2].Memory / 8 >> 20 << 20; s.GPUSlices != 1 || s.ComputeSlices != 1 || s.MemoryBytes != want || !strings.HasPrefix(s.UUID, "MIG-") {
			t.Errorf("slice %+v, want one of %d bytes", s, want)
		}
	}
	if len(seen) != 3 {
		t.Errorf("UUIDs %v", seen)
	}
	if err := d.Faults.Set(Partitioned(2, 3), Fails("nvmlDeviceGetAttributes", 2, Unknown)); err != nil {
		t.Fatal(err)
	}
	if _, err := dev.Slices(); err == nil {
		t.Error("slices without attributes")
	}
}

// TestGPUState: the state of a GPU is reported.
func TestGPUState(t *testing.T) {
	d, _ := load(t, "dgx-h100")
	lib := live.New(library(t))
	opened(t, lib)
	dev, err := lib.Device(2)
	if err != nil {
		t.Fatal(err)
	}
	type state struct {
		Rows     nvml.RowRemap
		Recovery nvml.RecoveryAction
		Fabric   nvml.FabricState
	}
	for name, tc := range map[string]struct {
		fault Fault
		want  state
	}{
		"another GPU's":    {Recovery(3, 1), state{Fabric: nvml.FabricCompleted}},
		"rows wait":        {RemapPending(2), state{Rows: nvml.RowRemap{Pending: true}, Fabric: nvml.FabricCompleted}},
		"rows fail":        {RemapFailed(2), state{Rows: nvml.RowRemap{Failed: true}, Fabric: nvml.FabricCompleted}},
		"a reset is asked": {Recovery(2, 1), state{Recovery: nvml.RecoveryReset, Fabric: nvml.FabricCompleted}},
		"no fabric yet":    {Fabric(2, 2), state{Fabric: nvml.FabricInProgress}},
	} {
		t.Run(name, func(t *testing.T) {
			if err := d.Faults.Set(tc.fault); err != nil {
				t.Fatal(err)
			}
			rows, err1 := dev.RowRemap()
			recovery, err2 := dev.Recovery()
			fabric, err3 := dev.Fabric()
			if diff := cmp.Diff(tc.want, state{rows, recovery, fabric.State}); diff != "" || errors.Join(err1, err2, err3) != nil {
				t.Errorf("errors %v, %v, %v (-want,+got):\n%s", err1, err2, err3, diff)
			}
		})
	}
}

// TestHangingCall: a call hangs until it is let go.
func TestHangingCall(t *testing.T) {
	d, _ := load(t, "dgx-a100")
	lib := live.New(library(t))
	opened(t, lib)
	dev, err := lib.Device(0)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Faults.Set(Hangs("nvmlDeviceGetMemoryInfo", 0)); err != nil {
		t.Fatal(err)
	}
	returned := make(chan error, 1)
	go func() { _, err := dev.MemoryBytes(); returned <- err }()
	if _, err := dev.UUID(); err != nil {
		t.Errorf("another call about the GPU: %v", err)
	}
	select {
	case err := <-returned:
		t.Errorf("it returned: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	if err := d.Faults.Set(); err != nil {
		t.Fatal(err)
	}
	if err := <-returned; err != nil {
		t.Errorf("after the hang: %v", err)
	}
}

// TestXidDelivery: every set hears of an Xid once.
func TestXidDelivery(t *testing.T) {
	d, g := load(t, "dgx-a100")
	lib := live.New(library(t))
	opened(t, lib)
	if err := d.Faults.Xid(1, 48); err != nil { // before there is a set
		t.Fatal(err)
	}
	var sets []nvml.EventSet
	for range 2 {
		s, err := lib.NewEventSet()
		if err != nil {
			t.Fatal(err)
		}
		dev, err := lib.Device(1)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Register(dev); err != nil {
			t.Fatal(err)
		}
		sets = append(sets, s)
	}
	if err := d.Faults.Xid(0, 48); err != nil { // of a GPU that no set is about
		t.Fatal(err)
	}
	if err := d.Faults.Xid(1, 79); err != nil {
		t.Fatal(err)
	}
	for i, s := range sets {
		ev, err := s.Wait(time.Second)
		if diff := cmp.Diff(nvml.RawEvent{UUID: g.GPUs[1].UUID, Xid: 79}, ev); err != nil || diff != "" {
			t.Errorf("set %d: error %v (-want,+got):\n%s", i, err, diff)
		}
		if ev, err := s.Wait(0); nvml.KindOf(err) != nvml.KindTimeout {
			t.Errorf("set %d: another event %v, error %v", i, ev, err)
		}
		if err := s.Free(); err != nil {
			t.Error(err)
		}
	}
}

// TestMissingSymbol: a library without a symbol is still read.
func TestMissingSymbol(t *testing.T) {
	d, _ := load(t, "dgx-a100")
	reduced := filepath.Join(t.TempDir(), LibraryName)
	if err := Without(library(t), reduced, "nvmlDeviceGetNvLinkRemoteDeviceType", "nvmlDeviceGetRemappedRows"); err != nil {
		t.Fatal(err)
	}
	lib := live.New(reduced)
	opened(t, lib)
	dev, err := lib.Device(0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dev.RowRemap(); nvml.KindOf(err) != nvml.KindNotSupported {
		t.Errorf("row remapping: %v, want not supported", err)
	}
	if _, err := dev.Name(); err != nil {
		t.Errorf("name: %v", err)
	}
	g, problems, err := nvml.Discover(t.Context(), lib, d.Sysfs(), nvml.Options{})
	if err != nil || len(problems) > 0 {
		t.Fatalf("error %v, problems %v", err, problems)
	}
	if got := g.Link(0, 7).Class.String(); got != "NV12" { // by the switch's address
		t.Errorf("link %s, want NV12", got)
	}
	if err := Without(library(t), reduced, "nvmlNone"); err == nil {
		t.Error("a symbol that is not there was taken out")
	}
}

// TestMissingCapability: a model without a capability is an error.
func TestMissingCapability(t *testing.T) {
	_, g := load(t, "dgx-a100")
	g.GPUs[0].Model = "Another"
	if _, err := Write(t.TempDir(), g, 4); err == nil || !strings.Contains(err.Error(), "GPU 0") {
		t.Errorf("error %v", err)
	}
}
