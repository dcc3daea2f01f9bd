// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/nvml/fakedriver"
)

// hardwareFault is one line of the fault table of docs/exporter.md.
type hardwareFault struct {
	machine string // "dgx-h100" when empty
	// before prepares the node before its exporter starts. A late node need not be sound first.
	before func(t *testing.T, n *exporterNode)
	late   bool
	strike func(t *testing.T, n *exporterNode)
	// published and logged are parts of the reports about it.
	published []string
	logged    string
	shown     string // replaces published in the table
	heal      func(t *testing.T, n *exporterNode)
	cure      string // name of heal, for the table
}

// set sets the machine's faults.
func set(faults ...fakedriver.Fault) func(*testing.T, *exporterNode) {
	return func(t *testing.T, n *exporterNode) {
		t.Helper()
		if err := n.Faults.Set(faults...); err != nil {
			t.Fatal(err)
		}
	}
}

// raise makes the driver report Xids of GPU 3.
func raise(xids ...uint64) func(*testing.T, *exporterNode) {
	return func(t *testing.T, n *exporterNode) {
		t.Helper()
		for _, x := range xids {
			if err := n.Faults.Xid(3, x); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// without gives the exporter a library that lacks these calls.
func without(symbols ...string) func(*testing.T, *exporterNode) {
	return func(t *testing.T, n *exporterNode) {
		t.Helper()
		n.library = filepath.Join(t.TempDir(), fakedriver.LibraryName)
		if err := fakedriver.Without(fakeLibrary(t), n.library, symbols...); err != nil {
			t.Fatal(err)
		}
	}
}

// install atomically puts the library at the exporter's path.
func install(t *testing.T, n *exporterNode) {
	t.Helper()
	image, err := os.ReadFile(fakeLibrary(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(n.library+".new", image, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(n.library+".new", n.library); err != nil {
		t.Fatal(err)
	}
}

// nothing leaves the fault as it is, or to end by itself.
func nothing(*testing.T, *exporterNode) {}

// again runs a new exporter, with the whole library.
func again(t *testing.T, n *exporterNode) {
	t.Helper()
	n.stop(t)
	n.library = fakeLibrary(t)
	n.start(t)
}

const fullHold = "by itself, after `--xid-hold` (20 s here)"

// eventCalls and otherCalls are all calls that a reduced driver may lack.
var (
	eventCalls = []string{
		"nvmlEventSetCreate", "nvmlEventSetWait_v2", "nvmlEventSetFree", "nvmlDeviceGetSupportedEventTypes", "nvmlDeviceRegisterEvents",
	}
	otherCalls = []string{
		"nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMaxPcieLinkGeneration", "nvmlDeviceGetMigMode", "nvmlDeviceGetRemappedRows",
		"nvmlDeviceGetFieldValues", "nvmlDeviceGetNvLinkRemoteDeviceType", "nvmlDeviceGetP2PStatus", "nvmlDeviceGetTopologyCommonAncestor",
	}
)

func hardwareFaults() map[string]hardwareFault {
	faults := map[string]hardwareFault{
		"GPU lost": {
			strike: set(fakedriver.Lost(3)), heal: set(), cure: "it answers again",
			published: []string{"GPU 3 healthy=false degraded=false: GPU is lost"}, logged: "A GPU's health changed",
		},
		"GPU lost, and Xid 79 of it": {
			before: func(_ *testing.T, n *exporterNode) { n.xidHold = time.Hour },
			strike: func(t *testing.T, n *exporterNode) {
				t.Helper()
				set(fakedriver.Lost(3))(t, n)
				raise(79)(t, n)
			},
			published: []string{"GPU 3 healthy=false degraded=false: GPU is lost"}, logged: "xid=79",
			heal: func(t *testing.T, n *exporterNode) {
				t.Helper()
				set()(t, n)
				n.becomes(t, []string{"GPU 3 healthy=false degraded=false: Xid 79"}) // still reported
				again(t, n)
			},
			cure: "it answers again: `Xid 79`; then a restart of the exporter",
		},
		"GPU no longer listed": {
			strike: set(fakedriver.Gone(3)), heal: set(), cure: "it is listed again",
			published: []string{"healthy=false degraded=false: GPU is lost: the driver no longer lists it"}, logged: "no longer lists it",
		},
		"GPU hidden (no permission)": {
			strike: set(fakedriver.Fails("nvmlDeviceGetHandleByIndex", 3, fakedriver.NoPermission)), heal: set(), cure: "it opens",
			published: []string{"GPU 3 healthy=false degraded=false: no permission to open the GPU"}, logged: "no permission to open the GPU",
		},
		"remapped rows cannot be read": {
			strike: set(fakedriver.Fails("nvmlDeviceGetRemappedRows", 3, fakedriver.Unknown)), heal: set(), cure: "they can be read",
			published: []string{"ReadWithProblems: ", "row remapping: "}, logged: "row remapping: ",
		},
		"row remapping failed": {
			strike: set(fakedriver.RemapFailed(3)), heal: set(), cure: "another GPU",
			published: []string{"GPU 3 healthy=false degraded=false: memory row remapping failed"}, logged: "memory row remapping failed",
		},
		"row remapping pending": {
			strike: set(fakedriver.RemapPending(3)), heal: set(), cure: "a reset",
			published: []string{"ReadWithProblems: ", "memory rows wait for a reset"}, logged: "memory rows wait for a reset",
		},
		"the driver asks for a reset": {
			strike: set(fakedriver.Recovery(3, 1)), heal: set(), cure: "a reset",
			published: []string{"GPU 3 healthy=false degraded=false: the driver asks for a GPU reset"}, logged: "the driver asks for a GPU reset",
		},
		"the driver asks to drain peer traffic": {
			strike: set(fakedriver.Recovery(3, 3)), heal: set(), cure: "it wants nothing",
			published: []string{"GPU 3 healthy=true degraded=true: the driver asks to drain peer traffic"}, logged: "drain peer traffic",
		},
		"MIG switched on": {
			strike: set(fakedriver.Partitioned(3, 7)), heal: set(), cure: "it is off",
			published: []string{"GPU 3 is partitioned:" + strings.Repeat(" 1g.10gb", 7), "link 0-3 NODE"}, logged: "Published the topology",
		},
		"MIG devices cannot be read": {
			strike: set(fakedriver.Partitioned(3, 7), fakedriver.Fails("nvmlDeviceGetAttributes", 3, fakedriver.Unknown)), heal: set(), cure: "MIG is off",
			published: []string{"ReadWithProblems: ", "MIG devices", "GPU 3 is partitioned:"}, logged: "MIG devices",
		},
		"no NVSwitch fabric yet": {
			strike: set(fakedriver.Fabric(3, 2)), heal: set(), cure: "it is registered",
			published: []string{"GPU 3 healthy=false degraded=false: NVSwitch fabric is not ready", "link 0-3 NODE"}, logged: "NVSwitch fabric is not ready",
		},
		"the driver hangs for a GPU": {
			strike: set(fakedriver.Hangs("nvmlDeviceGetMemoryInfo", 3)), heal: set(), cure: "the call ends",
			published: []string{"GPU 3 healthy=false degraded=false: the driver does not answer for this GPU"}, logged: "does not answer for this GPU",
		},
		"the driver hangs for all": {
			strike: set(fakedriver.Hangs("nvmlDeviceGetCount", fakedriver.AllGPUs)), heal: set(), cure: "the call ends",
			published: []string{"ReadFailed: "}, logged: "Publishing failed, will retry",
		},
		"waiting for events hangs": {
			strike: set(fakedriver.Hangs("nvmlEventSetWait", fakedriver.AllGPUs)), heal: set(), cure: "the call ends",
			published: []string{"ReadWithProblems: no events can be watched: wait for events"}, logged: "no events can be watched",
		},
		"no event set is made": {
			before: set(fakedriver.Fails("nvmlEventSetCreate", fakedriver.AllGPUs, fakedriver.Unknown)), late: true,
			strike: nothing, heal: set(), cure: "one is made",
			published: []string{"ReadWithProblems: no events can be watched: nvmlEventSetCreate"}, logged: "no events can be watched",
		},
		"an NVLink to a switch down": {
			strike: set(fakedriver.LinkDown(3, 5)), heal: set(), cure: "it is up",
			published: []string{"1 of 18 NVLinks are down", "link 0-3 NV17/NODE", "link 3-7 NV17/SYS"}, logged: "1 of 18 NVLinks are down",
		},
		"all NVLinks of a GPU down": {
			strike: set(fakedriver.LinksDown(3)), heal: set(), cure: "they are up",
			published: []string{"18 of 18 NVLinks are down", "link 0-3 NODE", "link 3-7 SYS"}, logged: "18 of 18 NVLinks are down",
		},
		"an NVLink of a pair down": {
			machine: "dgx1-v100",
			strike:  set(fakedriver.LinkDown(3, 0)), heal: set(), cure: "it is up",
			published: []string{"1 of 6 NVLinks are down", "link 0-3 NV1/PHB"}, logged: "1 of 6 NVLinks are down",
		},
		"the driver is unloaded": {
			strike: set(fakedriver.Fails("nvmlInit", fakedriver.AllGPUs, fakedriver.DriverNotLoaded)), heal: set(), cure: "it is loaded",
			published: []string{"DriverNotFound: "}, logged: "Publishing failed, will retry",
		},
		"no driver at first": {
			before: func(t *testing.T, n *exporterNode) {
				t.Helper()
				n.library = filepath.Join(t.TempDir(), fakedriver.LibraryName)
			},
			late: true, strike: nothing, published: []string{"nothing"}, logged: "Publishing failed, will retry",
			heal: install, cure: "it comes",
		},
		"library of another driver": {
			strike:    set(fakedriver.Fails("nvmlInit", fakedriver.AllGPUs, fakedriver.VersionMismatch)),
			published: []string{"ReadFailed: "}, logged: "the driver was updated and this process must be restarted",
			heal: func(t *testing.T, n *exporterNode) {
				t.Helper()
				if err := <-n.ended; err == nil || n.process.ProcessState.ExitCode() != 1 {
					t.Errorf("the exporter ended with %v, want status 1", err)
				}
				set()(t, n)
				n.start(t)
			},
			cure: "the exporter ends with status 1; its next container",
		},
		"the driver lacks the calls of events": {
			before: without(eventCalls...), late: true,
			strike: nothing, heal: again, cure: "a restart with the whole library",
			published: []string{"ReadWithProblems: no events can be watched: nvmlEventSetCreate: not in the installed driver"}, logged: "no events can be watched",
		},
		"the driver lacks one of them": {
			before: without("nvmlDeviceGetSupportedEventTypes"), late: true,
			strike: nothing, heal: again, cure: "a restart with the whole library",
			published: []string{"no events can be watched: nvmlDeviceGetSupportedEventTypes: not in the installed driver"}, logged: "no events can be watched",
		},
	}
	faults["NVLinks that do not exist, as disabled"] = hardwareFault{
		before: set(fakedriver.PhantomLinks(fakedriver.AllGPUs, 36)),
		strike: nothing, shown: "nothing", heal: set(), cure: "no matter",
	}
	faults["the driver lacks other calls"] = hardwareFault{
		before: without(otherCalls...), late: true, strike: nothing, heal: again, cure: "a restart with the whole library",
		published: []string{"ReadWithProblems: memory of GPU 0-7 is not known"}, logged: "memory of GPU 0-7 is not known",
	}
	faults["Xids of applications (13, 31, 43, 45, 68, 109)"] = hardwareFault{
		strike: func(t *testing.T, n *exporterNode) {
			t.Helper()
			raise(13, 31, 43, 45, 68, 109)(t, n)
			if err := n.Faults.Xid(0, 94); err != nil { // comes after them
				t.Fatal(err)
			}
			n.becomes(t, []string{"GPU 0 healthy=false degraded=false: Xid 94"})
			if said := strings.Join(n.says(n.get(t.Context())), "; "); strings.Contains(said, "GPU 3") {
				t.Errorf("GPU 3 is not to be mentioned: %s", said)
			}
		},
		shown: "nothing", heal: nothing, cure: "no matter (another GPU's `Xid 94` beside them heals)",
	}
	for _, xid := range []uint64{48, 63, 79, 94, 95, 119} {
		faults[fmt.Sprintf("Xid %d", xid)] = hardwareFault{
			strike: raise(xid), heal: nothing, cure: fullHold,
			published: []string{fmt.Sprintf("GPU 3 healthy=false degraded=false: Xid %d", xid)}, logged: fmt.Sprintf("xid=%d", xid),
		}
	}
	faults["Xid 74"] = hardwareFault{
		strike: raise(74), heal: nothing, cure: fullHold,
		published: []string{"GPU 3 healthy=true degraded=true: NVLink error: Xid 74"}, logged: "xid=74",
	}
	return faults
}

// TestExporterFaults runs the exporter's process on a fake driver library and prints how long each fault
// takes to be published and to heal.
func TestExporterFaults(t *testing.T) {
	l := newTestEnv(t, devcluster.Config{})
	l.install(t)
	testkit.Program(t, "nvtopo-exporter") // before all tests start it
	var (
		slots = make(chan struct{}, 10)
		wg    sync.WaitGroup
		mu    sync.Mutex
		rows  []string
	)
	i := 0
	for name, f := range hardwareFaults() {
		i++
		node := fmt.Sprintf("n%d", i)
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			t.Run(name, func(t *testing.T) {
				row := f.run(t, l, node)
				mu.Lock()
				defer mu.Unlock()
				rows = append(rows, fmt.Sprintf("| %s | %s |", name, row))
			})
		})
	}
	wg.Wait()
	slices.Sort(rows)
	t.Logf("published after, healed after:\n%s", strings.Join(rows, "\n"))
}

// run plays one fault and its cure, and returns its line of the table.
func (f *hardwareFault) run(t *testing.T, l *testEnv, name string) string {
	t.Helper()
	machine := f.machine
	if machine == "" {
		machine = "dgx-h100"
	}
	n := newExporterNode(t, l, name, machine)
	if f.before != nil {
		f.before(t, n)
	}
	n.start(t)
	if !f.late {
		n.becomesSound(t)
	}
	f.strike(t, n)
	published := n.becomes(t, f.published)
	shown := f.shown
	if shown == "" {
		shown = "`" + strings.Join(f.published, "`, `") + "`"
	}
	n.logs(t, f.logged)
	f.heal(t, n)
	healed := n.becomesSound(t)
	n.stop(t)
	return fmt.Sprintf("%s | %.1f s | `%s` | %s: %.1f s", shown, published.Seconds(), f.logged, f.cure, healed.Seconds())
}
