// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/nvtopo/nvtopo/internal/testkit"
)

// fakeLib is a driver that answers from tables. Faults are set per method name.
type fakeLib struct {
	gpus  []*fakeGPU
	count int // reported count; len(gpus) when 0

	mu       sync.Mutex
	refs     int // guarded by mu
	initErr  error
	events   chan RawEvent
	eventErr chan error
	sets     []*fakeEvents // made and not freed; guarded by mu
	made     int           // event sets; guarded by mu
	waits    int           // calls that waited for events and ended; guarded by mu
	setErr   error         // why no event set is made; guarded by mu
	regErr   error
	initHang chan struct{} // when set, Init blocks until it is closed; guarded by mu
	waitHang chan struct{} // when set, Wait blocks until it is closed; guarded by mu
	inside   int           // calls that block; guarded by mu
	misuse   []string      // calls that would have crashed a real driver; guarded by mu
}

type fakeLink struct {
	up     bool
	remote string
	kind   RemoteType
}

type fakeGPU struct {
	uuid, name, bus string
	memory          int64
	mig             bool
	slices          []Slice
	major, gen      int
	links           []fakeLink
	fabric          Fabric
	remap           RowRemap
	recovery        RecoveryAction
	ancestor        map[string]Ancestor   // other UUID -> answer
	peer            map[string]PeerStatus // other UUID -> answer
	openErr         error                 // the handle cannot be had
	regErr          error                 // why events are refused
	regHang         chan struct{}         // when set, Register blocks until it is closed
	errs            map[string]error      // method -> fault
	hang            chan struct{}         // when set, UUID blocks until it is closed
}

func notSupported(call string) error {
	return &Error{Call: call, Kind: KindNotSupported, Text: "Not Supported"}
}

func lost(call string) error {
	return &Error{Call: call, Kind: KindLost, Text: "GPU is lost"}
}

// set changes the driver's answers, concurrently with calls.
func (l *fakeLib) set(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
}

// block blocks the caller until a channel is closed, at once if it is nil. The lock is
// held before and after and not in between.
func (l *fakeLib) block(until chan struct{}) {
	if until == nil {
		return
	}
	l.inside++
	l.mu.Unlock()
	<-until
	l.mu.Lock()
	l.inside--
}

// blocked is how many calls block.
func (l *fakeLib) blocked() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inside
}

func (l *fakeLib) Init() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.block(l.initHang)
	if l.initErr != nil {
		return l.initErr
	}
	l.refs++
	return nil
}

func (l *fakeLib) Shutdown() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refs--; l.refs < 0 || l.refs == 0 && l.inside > 0 {
		l.misuse = append(l.misuse, fmt.Sprintf("%d references, %d calls inside", l.refs, l.inside))
	}
	return nil
}

func (l *fakeLib) references() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.refs
}

func (l *fakeLib) DeviceCount() (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.count > 0 {
		return l.count, nil
	}
	return len(l.gpus), nil
}

func (l *fakeLib) Device(i int) (Device, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.gpus[i].openErr; err != nil {
		return nil, err
	}
	return fakeDevice{l.gpus[i], l}, nil
}

type fakeDevice struct {
	g *fakeGPU
	l *fakeLib
}

func (d fakeDevice) UUID() (string, error) {
	d.l.mu.Lock()
	defer d.l.mu.Unlock()
	d.l.block(d.g.hang)
	return d.g.uuid, nil
}
func (d fakeDevice) Name() (string, error)             { return d.g.name, d.g.errs["Name"] }
func (d fakeDevice) BusID() (string, error)            { return d.g.bus, d.g.errs["BusID"] }
func (d fakeDevice) MemoryBytes() (int64, error)       { return d.g.memory, d.g.errs["MemoryBytes"] }
func (d fakeDevice) Slices() ([]Slice, error)          { return d.g.slices, d.g.errs["Slices"] }
func (d fakeDevice) MIGEnabled() (bool, error)         { return d.g.mig, d.g.errs["MIGEnabled"] }
func (d fakeDevice) ComputeMajor() (int, error)        { return d.g.major, d.g.errs["ComputeMajor"] }
func (d fakeDevice) MaxPCIeGen() (int, error)          { return d.g.gen, d.g.errs["MaxPCIeGen"] }
func (d fakeDevice) Fabric() (Fabric, error)           { return d.g.fabric, d.g.errs["Fabric"] }
func (d fakeDevice) RowRemap() (RowRemap, error)       { return d.g.remap, d.g.errs["RowRemap"] }
func (d fakeDevice) Recovery() (RecoveryAction, error) { return d.g.recovery, d.g.errs["Recovery"] }
func (d fakeDevice) CommonAncestor(o Device) (Ancestor, error) {
	return d.g.ancestor[o.(fakeDevice).g.uuid], d.g.errs["CommonAncestor"]
}

func (d fakeDevice) NVLinkPeer(o Device) (PeerStatus, error) {
	return d.g.peer[o.(fakeDevice).g.uuid], d.g.errs["NVLinkPeer"]
}

func (d fakeDevice) NVLinkActive(l int) (bool, error) {
	if err := d.g.errs["NVLinkActive"]; err != nil {
		return false, err
	}
	if err := d.g.errs["NVLinkActive"+strconv.Itoa(l)]; err != nil {
		return false, err
	}
	if len(d.g.links) == 0 {
		return false, notSupported("nvmlDeviceGetNvLinkState")
	}
	if l >= len(d.g.links) {
		return false, &Error{Call: "nvmlDeviceGetNvLinkState", Kind: KindInvalidArgument, Text: "Invalid Argument"}
	}
	return d.g.links[l].up, nil
}

func (d fakeDevice) NVLinkRemoteBusID(l int) (string, error) {
	return d.g.links[l].remote, d.g.errs["NVLinkRemoteBusID"]
}

func (d fakeDevice) NVLinkRemoteType(l int) (RemoteType, error) {
	return d.g.links[l].kind, d.g.errs["NVLinkRemoteType"]
}

// allOnes is the address that drivers print for a far end that is not on the bus.
const allOnes = "FFFFFFFF:FF:FF.0"

// machine makes n like GPUs, alternating over NUMA halves, in one PCIe relation.
func machine(n int, name string, major, gen int, ancestor func(i, j int) Ancestor) *fakeLib {
	l := &fakeLib{}
	for i := range n {
		l.gpus = append(l.gpus, &fakeGPU{
			uuid: fmt.Sprintf("GPU-%02d", i), name: name, bus: fmt.Sprintf("00000000:%02X:00.0", 0x10+i),
			memory: 80 << 30, major: major, gen: gen, errs: map[string]error{},
			ancestor: map[string]Ancestor{}, peer: map[string]PeerStatus{},
		})
	}
	for i, g := range l.gpus {
		for j, o := range l.gpus {
			if i != j {
				g.ancestor[o.uuid] = ancestor(i, j)
			}
		}
	}
	return l
}

// halves is the relation of a machine of two sockets with half the GPUs each.
func halves(n int) func(i, j int) Ancestor {
	return func(i, j int) Ancestor {
		if (i < n/2) == (j < n/2) {
			return AncestorNode
		}
		return AncestorSystem
	}
}

// directLinks wires GPUs by a matrix of link counts, each link at its own number.
func (l *fakeLib) directLinks(matrix [][]int) {
	for i, row := range matrix {
		for j, n := range row {
			for range n {
				l.gpus[i].links = append(l.gpus[i].links, fakeLink{up: true, remote: l.gpus[j].bus, kind: RemoteGPU})
			}
			if n > 0 {
				l.gpus[i].peer[l.gpus[j].uuid] = PeerOK
			} else if i != j {
				l.gpus[i].peer[l.gpus[j].uuid] = PeerRefused
			}
		}
	}
}

// switchLinks gives every GPU n links to switches at the given addresses.
func (l *fakeLib) switchLinks(n int, kind RemoteType, remotes ...string) {
	for _, g := range l.gpus {
		for k := range n {
			g.links = append(g.links, fakeLink{up: true, remote: remotes[k%len(remotes)], kind: kind})
		}
		for _, o := range l.gpus {
			if o != g {
				g.peer[o.uuid] = PeerOK
			}
		}
		g.fabric = Fabric{State: FabricNotSupported}
		if g.major >= hopper {
			g.fabric = Fabric{State: FabricCompleted}
		}
	}
}

// dgx1V is the hybrid cube mesh of a DGX-1 with V100s, as `topo -m` prints it.
var dgx1V = [][]int{
	{0, 1, 1, 2, 2, 0, 0, 0},
	{1, 0, 2, 1, 0, 2, 0, 0},
	{1, 2, 0, 2, 0, 0, 1, 0},
	{2, 1, 2, 0, 0, 0, 0, 1},
	{2, 0, 0, 0, 0, 1, 1, 2},
	{0, 2, 0, 0, 1, 0, 2, 1},
	{0, 0, 1, 0, 1, 2, 0, 2},
	{0, 0, 0, 1, 2, 1, 2, 0},
}

// tree builds a sysfs.
type tree struct {
	tb   testing.TB
	root string
}

func newTree(tb testing.TB) tree {
	tb.Helper()
	return tree{tb, tb.TempDir()}
}

func (s tree) file(path, content string) {
	s.tb.Helper()
	p := filepath.Join(s.root, path)
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		s.tb.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(content+"\n"), 0o644); err != nil {
		s.tb.Fatal(err)
	}
}

func (s tree) link(path, target string) {
	s.tb.Helper()
	p := filepath.Join(s.root, path)
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		s.tb.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(s.root, target), p); err != nil {
		s.tb.Fatal(err)
	}
}

// numa writes a NUMA node; cpus is a kernel list, memory in KiB.
func (s tree) numa(id int, cpus, distance string, kib int) {
	s.tb.Helper()
	dir := fmt.Sprintf("devices/system/node/node%d/", id)
	s.file(dir+"cpulist", cpus)
	if distance != "" {
		s.file(dir+"distance", distance)
	}
	s.file(dir+"meminfo", fmt.Sprintf("Node %d MemTotal:       %d kB\nNode %d MemFree:        1 kB", id, kib, id))
}

// twoSockets writes two NUMA nodes of 8 CPUs with hyper-threads 8 apart.
func (s tree) twoSockets() {
	s.tb.Helper()
	s.file("devices/system/node/online", "0-1")
	s.numa(0, "0-3,8-11", "10 21", 1<<20)
	s.numa(1, "4-7,12-15", "21 10", 1<<20)
	for c := range 16 {
		s.file(fmt.Sprintf("devices/system/cpu/cpu%d/topology/thread_siblings_list", c), fmt.Sprintf("%d,%d", c%8, c%8+8))
	}
}

// pci writes a device at a path below the host bridge, such as
// "pci0000:00/0000:00:01.0/0000:10:00.0".
func (s tree) pci(path string, numa int, cpus string) string {
	s.tb.Helper()
	dir := "devices/" + path
	s.file(dir+"/numa_node", strconv.Itoa(numa))
	s.file(dir+"/local_cpulist", cpus)
	s.link("bus/pci/devices/"+filepath.Base(path), dir)
	return dir
}

// gpusOnSockets places the GPUs of machine, half on each socket of twoSockets,
// each under a root port of its own.
func (s tree) gpusOnSockets(n int) {
	s.tb.Helper()
	for i := range n {
		node, cpus := 0, "0-3,8-11"
		if i >= n/2 {
			node, cpus = 1, "4-7,12-15"
		}
		s.pci(fmt.Sprintf("pci0000:%02x/0000:%02x:01.0/0000:%02x:00.0", 0x80+0x10*node+i, 0x80+0x10*node+i, 0x10+i), node, cpus)
	}
}

// rdma writes an adapter whose PCI device is at path.
func (s tree) rdma(name, path string) {
	s.tb.Helper()
	s.link("class/infiniband/"+name+"/device", "devices/"+path)
}

func texts(ps []Problem) string {
	var b strings.Builder
	for _, p := range ps {
		b.WriteString(p.String() + "\n")
	}
	return b.String()
}

// quiet checks that everything was given back, and nothing too early.
func (l *fakeLib) quiet(t *testing.T) {
	t.Helper()
	testkit.Soon(t, "everything to be given back", func() bool { return l.openSets() == 0 && l.references() == 0 })
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range l.misuse {
		t.Error(m)
	}
}
