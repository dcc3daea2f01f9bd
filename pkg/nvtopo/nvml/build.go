// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// build assembles one graph from readings.
type build struct {
	sys      sysfs
	nodes    []nvtopo.NUMANode
	last     *nvtopo.Graph
	devs     []*reading
	pairs    map[[2]int]pairReading // positions in devs, smaller first
	ends     []end                  // in the order of devs
	wereUp   map[string]linkSet     // UUID -> links that were up at an earlier reading
	xids     map[string]xidVerdict  // by UUID
	problems []Problem
}

func (b *build) note(gpu, format string, args ...any) {
	b.problems = append(b.problems, Problem{GPU: gpu, Text: fmt.Sprintf(format, args...)})
}

// noteReadings reports the problems of the readings, once all devices are read.
func (b *build) noteReadings() {
	for i, r := range b.devs {
		for _, n := range r.notes {
			b.note(r.label(), "%s", n)
		}
		b.noteDown(i)
		if r.remap.Pending {
			b.note(r.label(), "memory rows wait for a reset to be remapped")
		}
	}
}

// addUnreadable keeps the place of a device whose UUID could not be read, if it is known from an earlier
// reading.
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

// keepMissing adds a tombstone for each GPU of the last graph that the driver no longer lists: pods may
// still hold it, and indices after it have shifted, so it keeps its number only if that is free. expired
// reports that a GPU has been missing for too long to be kept. A GPU whose slot holds another GPU now is
// known to be out of the machine, and gets none.
func (b *build) keepMissing(expired func(uuid string) bool) {
	// A place whose UUID was read elsewhere was a wrong guess.
	b.devs = slices.DeleteFunc(b.devs, func(r *reading) bool {
		return r.handle == nil && slices.ContainsFunc(b.devs, func(o *reading) bool { return o.handle != nil && o.uuid == r.uuid })
	})
	if b.last != nil {
		for i := range b.last.GPUs {
			old := &b.last.GPUs[i]
			if slices.ContainsFunc(b.devs, func(r *reading) bool { return r.uuid == old.UUID }) {
				continue
			}
			if by := b.inPlaceOf(old); by != nil {
				b.note(old.UUID, "left out, %s is in its place at %s", by.uuid, by.addr)
				continue
			}
			if expired(old.UUID) {
				b.note(old.UUID, "left out, the driver has not listed it for long")
				continue
			}
			b.note(old.UUID, "%s", reason(errGone))
			b.devs = append(b.devs, &reading{index: b.freeIndex(old.Index), uuid: old.UUID, failed: errGone})
		}
	}
	slices.SortStableFunc(b.devs, func(x, y *reading) int { return x.index - y.index })
}

// inPlaceOf returns the device read at the PCI address of a GPU of the last graph, nil if there is none.
func (b *build) inPlaceOf(old *nvtopo.GPU) *reading {
	addr, err := parsePCIAddr(old.PCIBusID)
	if err != nil || addr.hidden() {
		return nil
	}
	i := slices.IndexFunc(b.devs, func(r *reading) bool { return r.handle != nil && r.addr == addr })
	if i < 0 {
		return nil
	}
	return b.devs[i]
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
	b.xids = map[string]xidVerdict{}
	for _, r := range b.devs {
		b.xids[r.uuid] = book.verdict(r, now, hold)
	}
}

// graph builds the graph from the readings.
func (b *build) graph() (*nvtopo.Graph, error) {
	if len(b.devs) > nvtopo.MaxGPUs {
		return nil, fmt.Errorf("%d GPUs, at most %d are supported", len(b.devs), nvtopo.MaxGPUs)
	}
	gpus := make([]nvtopo.GPU, len(b.devs))
	places := make([]pciPlace, len(b.devs))
	for i, r := range b.devs {
		_, old := b.previous(r.uuid)
		places[i] = b.place(r, old)
	}
	b.findEnds() // ends of links, by the addresses known now
	for i := range b.devs {
		gpus[i] = b.gpu(i, &places[i])
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

// previous returns the position and record of a UUID in the last graph, -1 if it has none.
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

// gpu returns the record of the i-th device. Values that a failing device did not return are taken from
// the last graph, so that a fault changes health and nothing else.
func (b *build) gpu(i int, place *pciPlace) nvtopo.GPU {
	r, xid := b.devs[i], b.xids[b.devs[i].uuid]
	_, old := b.previous(r.uuid)
	g := nvtopo.GPU{
		UUID: r.uuid, Index: r.index, Model: cmp.Or(r.name, old.Model), Memory: cmp.Or(r.memory, old.Memory),
		MIG:       r.mig || (r.failed != nil || r.unsplit) && old.MIG,
		Slices:    r.slices,
		Unhealthy: cmp.Or(r.unusable(), xid.unhealthy, r.unready(b.ends[i]), r.doubtful(&old)),
	}
	if g.MIG && (!r.mig || r.uncut) {
		g.Slices = old.Slices
	}
	if g.Unhealthy == "" {
		g.Degraded = cmp.Or(r.limited(b.ends[i]), xid.degraded)
		if g.Degraded == "" && r.unsure != nil {
			g.Degraded = old.Degraded
		}
	}
	b.locate(&g, r, place, &old)
	return g
}

// locate sets a GPU's NUMA node, CPUs and address.
func (b *build) locate(g *nvtopo.GPU, r *reading, place *pciPlace, old *nvtopo.GPU) {
	switch {
	case len(place.path) == 0 && r.failed != nil && old.UUID != "":
		// A device that fell off the bus has left sysfs too.
		g.NUMANode, g.CPUs = old.NUMANode, old.CPUs
	case place.numa == nvtopo.UnknownNUMA:
		g.NUMANode = certainNode(b.nodes)
	default:
		g.NUMANode = cpuNode(b.nodes, place.numa)
	}
	if r.addr != (pciAddr{}) {
		g.PCIBusID = r.addr.String()
	}
	if len(g.CPUs) == 0 {
		g.CPUs = b.cpusOf(*place, g.NUMANode)
	}
	if place.numa == nvtopo.UnknownNUMA {
		place.numa = g.NUMANode
	}
}

// place finds the device in sysfs, by its last known address if it no longer returns one.
func (b *build) place(r *reading, old nvtopo.GPU) pciPlace {
	if r.addr == (pciAddr{}) {
		if a, err := parsePCIAddr(old.PCIBusID); err == nil {
			r.addr = a
		}
	}
	if r.addr == (pciAddr{}) {
		return pciPlace{numa: nvtopo.UnknownNUMA}
	}
	p, err := b.sys.place(b.sys.pciDir(r.addr))
	if err != nil && r.failed == nil {
		b.note(r.label(), "place in sysfs: %v", err)
	}
	return p
}

// cpusOf returns the device's own affinity, or that of its NUMA node. Without a node the kernel's list
// has every CPU and carries no information.
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

// addresses returns the PCI addresses of the devices.
func (b *build) addresses() map[pciAddr]bool {
	addrs := make(map[pciAddr]bool, len(b.devs))
	for _, r := range b.devs {
		addrs[r.addr] = true
	}
	return addrs
}

// findEnds computes each device's side of its links.
func (b *build) findEnds() {
	addrs := b.addresses()
	b.ends = make([]end, len(b.devs))
	for i, r := range b.devs {
		e := end{addr: r.addr, count: countLinks(r.links, addrs, b.sys.isNVSwitch), fabric: r.fabric}
		var text string
		e.trust, text = r.trust()
		if text != "" && (e.count.through > 0 || e.count.unknown > 0) {
			b.note(r.label(), "%s", text)
		}
		b.ends[i] = e
	}
}

// links returns the link of every pair.
func (b *build) links(gpus []nvtopo.GPU, places []pciPlace) map[[2]int]nvtopo.Link {
	links := make(map[[2]int]nvtopo.Link, len(gpus)*(len(gpus)-1)/2)
	for j := range gpus {
		for i := range j {
			links[[2]int{i, j}] = b.link(i, j, gpus, places)
		}
	}
	return links
}

// link returns the link of one pair. A pair with a failed device keeps its last link.
func (b *build) link(i, j int, gpus []nvtopo.GPU, places []pciPlace) nvtopo.Link {
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
		if n, switched := nvlinks(b.ends[i], b.ends[j], p.peer); n > 0 {
			class := nvtopo.Class{Kind: nvtopo.KindNVLink, Lanes: n}
			per := min(nvtopo.NVLinkPerLink(gpus[i].Model), nvtopo.NVLinkPerLink(gpus[j].Model))
			return nvtopo.NewLink(class, lvl, gen, per, switched)
		}
	}
	if lvl == nvtopo.PCIeUnknown {
		lvl = nvtopo.PCIeSYS // a class is required, and the worst promises nothing
		if b.devs[i].failed == nil && b.devs[j].failed == nil {
			b.note(gpus[i].UUID, "PCIe path to %s is not known, SYS assumed", gpus[j].UUID)
		}
	}
	return nvtopo.NewLink(nvtopo.Class{Kind: nvtopo.KindPCIe, PCIe: lvl}, lvl, gen, 0, false)
}

// pairGen returns the slower of two devices' PCIe generations, each from the driver or else from sysfs; 0
// when either is unknown.
func pairGen(a, aSys, b, bSys nvtopo.PCIeGen) nvtopo.PCIeGen {
	if a == 0 {
		a = aSys
	}
	if b == 0 {
		b = bSys
	}
	return min(a, b)
}

// nics lists the RDMA adapters with their PCIe level to each GPU.
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
