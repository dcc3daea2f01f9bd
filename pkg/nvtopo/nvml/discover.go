// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// Options tune discovery; the zero value is usable.
type Options struct {
	// Timeout bounds each sequence of driver calls; 20 s by default. A
	// half-seated bridge has been seen to slow calls to minutes (nccl#557).
	Timeout time.Duration
	// Clock is the real one by default.
	Clock clock.Clock
	// Previous is the graph of an earlier run on this boot: GPUs it has and the
	// driver no longer lists are kept as unhealthy.
	Previous *nvtopo.Graph
	// XidHold is for how long at least an Xid keeps a GPU unhealthy; 5 min by default.
	XidHold time.Duration
}

func (o Options) withDefaults() Options {
	if o.Timeout <= 0 {
		o.Timeout = 20 * time.Second
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.XidHold <= 0 {
		o.XidHold = 5 * time.Minute
	}
	return o
}

// Discover reads the graph of this machine once. The problems say what the
// graph had to do without; the error is for a node of which nothing can be said.
func Discover(ctx context.Context, lib Library, sysfsRoot string, opts Options) (*nvtopo.Graph, []Problem, error) {
	return New(lib, sysfsRoot, opts).Graph(ctx)
}

// Discoverer reads the graph of this machine again and again and remembers what
// a single reading cannot know: GPUs that were there before, and Xids.
type Discoverer struct {
	lib  Library
	sys  sysfs
	opts Options
	dog  *watchdog

	mu   sync.Mutex     // held for a whole reading
	last *nvtopo.Graph  // the latest good graph; guarded by mu
	seat map[int]string // driver's index -> UUID at the latest reading; guarded by mu
	owed int            // references kept while a call was stuck; guarded by mu

	xids xidBook
}

// New returns a Discoverer of the machine whose sysfs is mounted at sysfsRoot.
func New(lib Library, sysfsRoot string, opts Options) *Discoverer {
	opts = opts.withDefaults()
	d := &Discoverer{lib: lib, sys: sysfs{sysfsRoot}, opts: opts, dog: newWatchdog(opts.Clock, opts.Timeout)}
	d.xids.marks = map[string]xidMark{}
	d.Remember(opts.Previous)
	return d
}

// Remember sets the graph against which missing GPUs are noticed, unless one
// has been read since the Discoverer was made.
func (d *Discoverer) Remember(g *nvtopo.Graph) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.last != nil || g == nil {
		return
	}
	d.last = g
	d.seat = make(map[int]string, g.Len())
	for i := range g.GPUs {
		d.seat[g.GPUs[i].Index] = g.GPUs[i].UUID
	}
}

// Graph reads the machine. One reading runs at a time.
func (d *Discoverer) Graph(ctx context.Context) (*nvtopo.Graph, []Problem, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	nodes, err := d.sys.numaNodes()
	if err != nil {
		return nil, nil, fmt.Errorf("read sysfs: %w", err)
	}
	if _, err := guard(ctx, d.dog, "nvmlInit", func() (struct{}, error) { return struct{}{}, d.lib.Init() }); err != nil {
		return nil, nil, fmt.Errorf("initialise NVML: %w", err)
	}
	defer d.release(ctx)
	b := &build{nodes: nodes, sys: d.sys, last: d.last}
	if err := d.readAll(ctx, b); err != nil {
		return nil, nil, err
	}
	b.keepMissing()
	if err := d.readAllPairs(ctx, b); err != nil {
		return nil, nil, err
	}
	b.markXids(&d.xids, d.opts.Clock.Now(), d.opts.XidHold)
	g, err := b.graph()
	if err != nil {
		return nil, b.problems, err
	}
	d.last, d.seat = g, b.seats()
	return g, b.problems, nil
}

// release drops this reading's reference. While an abandoned call is still
// inside the library, which would be freed under it, the reference is only owed.
func (d *Discoverer) release(ctx context.Context) {
	d.owed++
	for d.owed > 0 && !d.dog.stuck() {
		d.owed--
		_, _ = guard(context.WithoutCancel(ctx), d.dog, "nvmlShutdown", func() (struct{}, error) { return struct{}{}, d.lib.Shutdown() })
	}
}

// readAll reads each device under a watchdog of its own.
func (d *Discoverer) readAll(ctx context.Context, b *build) error {
	n, err := guard(ctx, d.dog, "nvmlDeviceGetCount", d.lib.DeviceCount)
	if err != nil {
		return fmt.Errorf("count GPUs: %w", err)
	}
	for i := range n {
		r, err := guard(ctx, d.dog, fmt.Sprintf("GPU %d", i), func() (*reading, error) { return readDevice(d.lib, i) })
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			b.addUnreadable(i, d.seat[i], err)
			continue
		}
		b.add(r)
	}
	return nil
}

// readAllPairs asks about each pair once, row by row.
func (d *Discoverer) readAllPairs(ctx context.Context, b *build) error {
	b.pairs = map[[2]int]pairReading{}
	for i, r := range b.devs {
		if !r.askable() {
			continue
		}
		var others []Device
		var at []int
		for j := i + 1; j < len(b.devs); j++ {
			if b.devs[j].askable() {
				others, at = append(others, b.devs[j].handle), append(at, j)
			}
		}
		if len(others) == 0 {
			continue
		}
		row, err := guard(ctx, d.dog, "pairs of "+r.label(), func() ([]pairReading, error) { return readPairs(r.handle, others) })
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			b.note(r.label(), "links to other GPUs: %v", err)
			continue
		}
		for k, p := range row {
			b.pairs[[2]int{i, at[k]}] = p
		}
	}
	return nil
}

// askable reports whether the device can be asked about pairs.
func (r *reading) askable() bool { return r.handle != nil && r.failed == nil }

// build assembles one graph from readings.
type build struct {
	sys      sysfs
	nodes    []nvtopo.NUMANode
	last     *nvtopo.Graph
	devs     []*reading
	pairs    map[[2]int]pairReading // positions in devs, smaller first
	xidText  map[string]string      // UUID -> why an Xid keeps it unhealthy
	problems []Problem
}

func (b *build) note(gpu, format string, args ...any) {
	b.problems = append(b.problems, Problem{GPU: gpu, Text: fmt.Sprintf(format, args...)})
}

func (b *build) add(r *reading) {
	for _, n := range r.notes {
		b.note(r.label(), "%s", n)
	}
	if r.inactive > 0 {
		b.note(r.label(), "%d of %d NVLinks are down", r.inactive, r.inactive+len(r.links))
	}
	if r.remap.Pending {
		b.note(r.label(), "memory rows wait for a reset to be remapped")
	}
	b.devs = append(b.devs, r)
}

// addUnreadable keeps the place of a device that could not even say its UUID,
// if an earlier reading knows who sits there.
func (b *build) addUnreadable(index int, uuid string, err error) {
	if uuid == "" {
		b.note(fmt.Sprintf("GPU %d", index), "left out, its UUID is not known: %s", reason(err))
		return
	}
	b.note(uuid, "%s", reason(err))
	b.devs = append(b.devs, &reading{index: index, uuid: uuid, failed: err})
}

// errGone is the fault of a GPU the driver no longer lists.
var errGone = &Error{Call: "nvmlDeviceGetCount", Kind: KindLost, Text: "the driver no longer lists it"}

// keepMissing adds a tombstone for each GPU of the last graph the driver no
// longer lists: pods may still hold it, and indices after it have shifted, so it
// keeps its number only if that is free.
func (b *build) keepMissing() {
	// A place whose UUID turned up elsewhere was a guess that proved wrong.
	b.devs = slices.DeleteFunc(b.devs, func(r *reading) bool {
		return r.handle == nil && slices.ContainsFunc(b.devs, func(o *reading) bool { return o.handle != nil && o.uuid == r.uuid })
	})
	if b.last != nil {
		for i := range b.last.GPUs {
			old := &b.last.GPUs[i]
			if slices.ContainsFunc(b.devs, func(r *reading) bool { return r.uuid == old.UUID }) {
				continue
			}
			b.note(old.UUID, "%s", reason(errGone))
			b.devs = append(b.devs, &reading{index: b.freeIndex(old.Index), uuid: old.UUID, failed: errGone})
		}
	}
	slices.SortStableFunc(b.devs, func(x, y *reading) int { return x.index - y.index })
}

func (b *build) freeIndex(want int) int {
	top := -1
	taken := false
	for _, r := range b.devs {
		top = max(top, r.index)
		taken = taken || r.index == want
	}
	if taken {
		return top + 1
	}
	return want
}

func (b *build) seats() map[int]string {
	m := make(map[int]string, len(b.devs))
	for _, r := range b.devs {
		m[r.index] = r.uuid
	}
	return m
}

func (b *build) markXids(book *xidBook, now time.Time, hold time.Duration) {
	b.xidText = map[string]string{}
	for _, r := range b.devs {
		if text := book.verdict(r, now, hold); text != "" {
			b.xidText[r.uuid] = text
		}
	}
}

// graph turns the readings into the graph.
func (b *build) graph() (*nvtopo.Graph, error) {
	if len(b.devs) > nvtopo.MaxGPUs {
		return nil, fmt.Errorf("%d GPUs, at most %d are supported", len(b.devs), nvtopo.MaxGPUs)
	}
	gpus := make([]nvtopo.GPU, len(b.devs))
	places := make([]pciPlace, len(b.devs))
	for i, r := range b.devs {
		gpus[i], places[i] = b.gpu(r)
	}
	links := b.links(gpus, places)
	nics, err := b.nics(places)
	if err != nil {
		return nil, fmt.Errorf("read sysfs: %w", err)
	}
	g, err := nvtopo.NewGraph(gpus, b.nodes, nics, links)
	if err != nil {
		return nil, fmt.Errorf("build the graph: %w", err)
	}
	return g, nil
}

// previous is the position and record of a UUID in the last graph, -1 if none.
func (b *build) previous(uuid string) (int, nvtopo.GPU) {
	if b.last == nil {
		return -1, nvtopo.GPU{}
	}
	i := slices.IndexFunc(b.last.GPUs, func(g nvtopo.GPU) bool { return g.UUID == uuid })
	if i < 0 {
		return -1, nvtopo.GPU{}
	}
	return i, b.last.GPUs[i]
}

// gpu makes the record of one device. What a failing device could not say is
// taken from the last graph, so that a fault changes health and nothing else.
func (b *build) gpu(r *reading) (nvtopo.GPU, pciPlace) {
	_, old := b.previous(r.uuid)
	g := nvtopo.GPU{
		UUID: r.uuid, Index: r.index, Model: r.name, Memory: r.memory, MIG: r.mig,
		NUMANode: nvtopo.UnknownNUMA, Unhealthy: r.unusable(),
	}
	if g.Unhealthy == "" {
		g.Unhealthy = b.xidText[r.uuid]
	}
	if g.Model == "" {
		g.Model = old.Model
	}
	if g.Memory == 0 {
		g.Memory = old.Memory
	}
	if r.failed != nil && !r.mig {
		g.MIG = old.MIG
	}
	if r.addr == (pciAddr{}) && old.PCIBusID != "" {
		if a, err := parsePCIAddr(old.PCIBusID); err == nil {
			r.addr = a
		}
	}
	place := pciPlace{numa: nvtopo.UnknownNUMA}
	if r.addr != (pciAddr{}) {
		g.PCIBusID = r.addr.String()
		p, err := b.sys.place(b.sys.pciDir(r.addr))
		if err != nil && r.failed == nil {
			b.note(r.label(), "place in sysfs: %v", err)
		}
		place = p
	}
	switch {
	case len(place.path) == 0 && r.failed != nil && old.UUID != "":
		// A device that fell off the bus has left sysfs too.
		g.NUMANode, g.CPUs = old.NUMANode, old.CPUs
	case place.numa == nvtopo.UnknownNUMA:
		g.NUMANode = certainNode(b.nodes)
	default:
		g.NUMANode = cpuNode(b.nodes, place.numa)
	}
	if len(g.CPUs) == 0 {
		g.CPUs = b.cpusOf(place, g.NUMANode)
	}
	if place.numa == nvtopo.UnknownNUMA {
		place.numa = g.NUMANode
	}
	return g, place
}

// cpusOf is the device's own affinity, or that of its NUMA node. Without a
// node the kernel's list names every CPU and says nothing.
func (b *build) cpusOf(p pciPlace, node int) nvtopo.CPUSet {
	if node == nvtopo.UnknownNUMA {
		return nil
	}
	if len(p.cpus) > 0 {
		return p.cpus
	}
	i := slices.IndexFunc(b.nodes, func(n nvtopo.NUMANode) bool { return n.ID == node })
	if i < 0 {
		return nil
	}
	return b.nodes[i].CPUs
}

// links makes the link of every pair.
func (b *build) links(gpus []nvtopo.GPU, places []pciPlace) map[[2]int]nvtopo.Link {
	addrs := make(map[pciAddr]bool, len(b.devs))
	for _, r := range b.devs {
		addrs[r.addr] = true
	}
	ends := make([]end, len(b.devs))
	for i, r := range b.devs {
		ends[i] = end{addr: r.addr, count: countLinks(r.links, addrs, b.sys.isNVSwitch), fabric: r.fabric}
		var text string
		ends[i].trust, text = r.trust()
		if text != "" && (ends[i].count.through > 0 || ends[i].count.unknown > 0) {
			b.note(r.label(), "%s", text)
		}
	}
	links := make(map[[2]int]nvtopo.Link, len(gpus)*(len(gpus)-1)/2)
	for j := range gpus {
		for i := range j {
			links[[2]int{i, j}] = b.link(i, j, gpus, places, ends)
		}
	}
	return links
}

// link makes the link of one pair. A pair with a failed device keeps the link
// it had.
func (b *build) link(i, j int, gpus []nvtopo.GPU, places []pciPlace, ends []end) nvtopo.Link {
	p, asked := b.pairs[[2]int{i, j}]
	if !asked || p.failed != nil {
		x, _ := b.previous(gpus[i].UUID)
		y, _ := b.previous(gpus[j].UUID)
		if x >= 0 && y >= 0 {
			return b.last.Link(x, y)
		}
	}
	lvl := p.pcieLevel()
	if lvl == nvtopo.PCIeUnknown {
		lvl = level(places[i], places[j])
	}
	gen := pairGen(b.devs[i].gen, places[i].gen, b.devs[j].gen, places[j].gen)
	if asked && !gpus[i].MIG && !gpus[j].MIG { // a MIG instance has no peers
		if n, switched := nvlinks(ends[i], ends[j], p.peer); n > 0 {
			class := nvtopo.Class{Kind: nvtopo.KindNVLink, Lanes: n}
			per := min(nvtopo.NVLinkPerLink(gpus[i].Model), nvtopo.NVLinkPerLink(gpus[j].Model))
			return nvtopo.NewLink(class, lvl, gen, per, switched)
		}
	}
	if lvl == nvtopo.PCIeUnknown {
		lvl = nvtopo.PCIeSYS // a class is needed, and the worst promises nothing
		if b.devs[i].failed == nil && b.devs[j].failed == nil {
			b.note(gpus[i].UUID, "PCIe path to %s is not known, SYS assumed", gpus[j].UUID)
		}
	}
	return nvtopo.NewLink(nvtopo.Class{Kind: nvtopo.KindPCIe, PCIe: lvl}, lvl, gen, 0, false)
}

// pairGen is the slower of two devices' PCIe generations, each by the driver's
// word or else sysfs's; 0 when either is unknown.
func pairGen(a, aSys, b, bSys nvtopo.PCIeGen) nvtopo.PCIeGen {
	if a == 0 {
		a = aSys
	}
	if b == 0 {
		b = bSys
	}
	return min(a, b)
}

// nics places the RDMA adapters in relation to each GPU.
func (b *build) nics(gpus []pciPlace) ([]nvtopo.NIC, error) {
	names, places, err := b.sys.nics()
	if err != nil {
		return nil, err
	}
	var out []nvtopo.NIC
	for i, p := range places {
		n := nvtopo.NIC{Name: names[i], NUMANode: certainNode(b.nodes)}
		if p.numa != nvtopo.UnknownNUMA {
			n.NUMANode = cpuNode(b.nodes, p.numa)
		}
		p.numa = n.NUMANode
		for _, g := range gpus {
			n.Levels = append(n.Levels, level(p, g))
		}
		out = append(out, n)
	}
	return out, nil
}

// IsNoDriver reports whether err means that the machine has no NVIDIA driver,
// as opposed to a driver with a fault.
func IsNoDriver(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Kind == KindNoDriver
}
