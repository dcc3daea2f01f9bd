// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// DefaultResource is the extended resource of a GPU that names none.
const DefaultResource = "nvidia.com/gpu"

// reader carries one object's spec through the conversion, with the indices
// that the links and adapters refer to.
type reader struct {
	spec     *NodeGPUTopologySpec
	nodes    []nvtopo.NUMANode
	byIndex  map[int32]int    // spec.gpus[].index -> position in spec.gpus
	position []int            // position in spec.gpus -> position in its resource's graph
	members  map[string][]int // resource -> positions in spec.gpus, ascending by index
	cpus     CPULists
}

// Graphs returns one graph for each resource of the object, with the health
// that status reports. Positions are in ascending order of spec.gpus[].index.
// It is strict, also for objects that no API server has validated: an error
// names the object and the field.
func (t *NodeGPUTopology) Graphs() (map[string]*nvtopo.Graph, error) {
	graphs, _, err := new(Reader).Read(t)
	return graphs, err
}

// graphs reads all but the NUMA nodes, which are known by now.
func (r *reader) graphs(health []GPUHealth) (map[string]*nvtopo.Graph, error) {
	if err := r.indexGPUs(); err != nil {
		return nil, err
	}
	gpus, err := r.readGPUs(health)
	if err != nil {
		return nil, err
	}
	links, err := r.readLinks()
	if err != nil {
		return nil, err
	}
	nics, err := r.readNICs()
	if err != nil {
		return nil, err
	}
	graphs := map[string]*nvtopo.Graph{}
	for res := range r.members {
		g, err := nvtopo.NewGraph(gpus[res], r.nodes, nics[res], links[res])
		if err != nil {
			return nil, fmt.Errorf("spec: resource %s: %w", res, err)
		}
		graphs[res] = g
	}
	return graphs, nil
}

func (r *reader) readNUMANodes() error {
	base := field.NewPath("spec", "numaNodes")
	seen := map[int32]bool{}
	for i := range r.spec.NUMANodes {
		n, path := &r.spec.NUMANodes[i], base.Index(i)
		if n.ID < 0 || seen[n.ID] {
			return fieldError(path.Child("id"), "%d is negative or there twice", n.ID)
		}
		seen[n.ID] = true
		out, err := r.readNUMANode(n, path)
		if err != nil {
			return err
		}
		r.nodes = append(r.nodes, out)
	}
	return nil
}

func (r *reader) readNUMANode(n *NUMANode, path *field.Path) (out nvtopo.NUMANode, err error) {
	out.ID = int(n.ID)
	if out.CPUs, err = r.cpus.Read(n.CPUs); err != nil {
		return out, fieldError(path.Child("cpus"), "%w", err)
	}
	if out.Siblings, err = r.readCores(n, out.CPUs, path); err != nil {
		return out, err
	}
	if out.Memory, err = MemoryOf(n.Memory); err != nil {
		return out, fieldError(path.Child("memory"), "%w", err)
	}
	if len(n.Distances) != 0 && len(n.Distances) != len(r.spec.NUMANodes) {
		return out, fieldError(path.Child("distances"), "%d entries for %d NUMA nodes", len(n.Distances), len(r.spec.NUMANodes))
	}
	for j, d := range n.Distances {
		if d < 0 || d > maxDistance {
			return out, fieldError(path.Child("distances").Index(j), "%d is not between 0 and %d", d, maxDistance)
		}
		out.Distances = append(out.Distances, int(d))
	}
	return out, nil
}

// readCores returns the hyper-threads of each core of a NUMA node with these CPUs.
func (r *reader) readCores(n *NUMANode, cpus nvtopo.CPUSet, path *field.Path) (cores []nvtopo.CPUSet, err error) {
	for j, s := range n.Siblings {
		threads, err := r.cpus.Read(s)
		if err == nil && len(threads) > maxThreads {
			err = fmt.Errorf("%d hyper-threads of one core, at most %d are read", len(threads), maxThreads)
		}
		if err != nil {
			return nil, fieldError(path.Child("siblings").Index(j), "%w", err)
		}
		cores = append(cores, threads)
	}
	if n.ThreadsPerCore == 0 {
		return cores, nil
	}
	if cores = coresOf(cpus, n.ThreadsPerCore); len(n.Siblings) > 0 || n.ThreadsPerCore > maxThreads || len(cores) == 0 {
		return nil, fieldError(path.Child("threadsPerCore"), "%d beside %d siblings for %d CPUs: want no siblings, and a divisor of up to %d",
			n.ThreadsPerCore, len(n.Siblings), len(cpus), maxThreads)
	}
	return cores, nil
}

// indexGPUs checks the identity of every GPU and fixes the position it gets.
func (r *reader) indexGPUs() error {
	base := field.NewPath("spec", "gpus")
	r.byIndex, r.members, r.position = map[int32]int{}, map[string][]int{}, make([]int, len(r.spec.GPUs))
	ids := map[string]bool{}
	for i := range r.spec.GPUs {
		d, path := &r.spec.GPUs[i], base.Index(i)
		if d.ID == "" || ids[d.ID] {
			return fieldError(path.Child("id"), "%q is empty or there twice", d.ID)
		}
		ids[d.ID] = true
		if _, dup := r.byIndex[d.Index]; dup || d.Index < 0 {
			return fieldError(path.Child("index"), "%d is negative or there twice", d.Index)
		}
		r.byIndex[d.Index] = i
		known := slices.ContainsFunc(r.nodes, func(n nvtopo.NUMANode) bool { return n.ID == int(d.NUMANode) })
		if d.NUMANode != nvtopo.UnknownNUMA && !known {
			return fieldError(path.Child("numaNode"), "%d is neither -1 nor the id of one of numaNodes", d.NUMANode)
		}
		res := resourceOf(d)
		r.members[res] = append(r.members[res], i)
	}
	for _, list := range r.members {
		slices.SortFunc(list, func(a, b int) int { return cmp.Compare(r.spec.GPUs[a].Index, r.spec.GPUs[b].Index) })
		for p, i := range list {
			r.position[i] = p
		}
	}
	return nil
}

func (r *reader) readGPUs(health []GPUHealth) (map[string][]nvtopo.GPU, error) {
	// Entries for GPUs that spec does not have are ignored: spec and status are
	// separate writes, and a removed GPU's health may outlive it for a moment.
	unhealthy, degraded := map[string]string{}, map[string]string{}
	for i := range health {
		switch h := &health[i]; {
		case !h.Healthy:
			unhealthy[h.ID] = cmp.Or(h.Reason, "unhealthy")
		case h.Degraded:
			degraded[h.ID] = cmp.Or(h.Reason, "degraded")
		}
	}
	out := map[string][]nvtopo.GPU{}
	for res, list := range r.members {
		for _, i := range list {
			d := &r.spec.GPUs[i]
			path := field.NewPath("spec", "gpus").Index(i)
			cpus, err := r.cpus.Read(d.CPUs)
			if err != nil {
				return nil, fieldError(path.Child("cpus"), "%w", err)
			}
			memory, err := MemoryOf(d.Memory)
			if err != nil {
				return nil, fieldError(path.Child("memory"), "%w", err)
			}
			gpu := nvtopo.GPU{
				UUID: d.ID, Index: int(d.Index), PCIBusID: d.PCIBusID, Model: d.Model,
				NUMANode: int(d.NUMANode), CPUs: cpus, Memory: memory, MIG: d.MIG, Unhealthy: unhealthy[d.ID], Degraded: degraded[d.ID],
			}
			for _, s := range d.Slices {
				gpu.Slices = append(gpu.Slices, nvtopo.Slice{UUID: s.ID, Profile: s.Profile})
			}
			out[res] = append(out[res], gpu)
		}
	}
	return out, nil
}

// readLinks reports a pair that is missing by the indices people know, which
// NewGraph, working on positions, cannot do.
func (r *reader) readLinks() (map[string]map[[2]int]nvtopo.Link, error) {
	base := field.NewPath("spec", "links")
	out := map[string]map[[2]int]nvtopo.Link{}
	for res := range r.members {
		out[res] = map[[2]int]nvtopo.Link{}
	}
	if len(r.spec.LinkRows) > 0 {
		return out, r.readRows(out)
	}
	for i := range r.spec.Links {
		l, path := &r.spec.Links[i], base.Index(i)
		if l.A >= l.B {
			return nil, fieldError(path, "a %d must be smaller than b %d", l.A, l.B)
		}
		a, okA := r.byIndex[l.A]
		b, okB := r.byIndex[l.B]
		switch {
		case !okA:
			return nil, fieldError(path.Child("a"), "%d is not the index of one of gpus", l.A)
		case !okB:
			return nil, fieldError(path.Child("b"), "%d is not the index of one of gpus", l.B)
		}
		res := resourceOf(&r.spec.GPUs[a])
		if other := resourceOf(&r.spec.GPUs[b]); other != res {
			return nil, fieldError(path, "GPUs %d and %d are of different resources, %s and %s", l.A, l.B, res, other)
		}
		pair := [2]int{r.position[a], r.position[b]}
		if _, dup := out[res][pair]; dup {
			return nil, fieldError(path, "the pair %d, %d is there twice", l.A, l.B)
		}
		link, err := readLink(l, path)
		if err != nil {
			return nil, err
		}
		out[res][pair] = link
	}
	for res, list := range r.members {
		for p := range list {
			for q := p + 1; q < len(list); q++ {
				if _, ok := out[res][[2]int{p, q}]; !ok {
					return nil, fieldError(base, "no entry for GPUs %d and %d", r.spec.GPUs[list[p]].Index, r.spec.GPUs[list[q]].Index)
				}
			}
		}
	}
	return out, nil
}

func readLink(l *Link, path *field.Path) (nvtopo.Link, error) {
	class, err := readClass(l)
	if err != nil {
		return nvtopo.Link{}, fieldError(path.Child("class"), "%w", err)
	}
	level := class.PCIe
	if l.PCIe != "" {
		if level, err = nvtopo.ParsePCIeLevel(l.PCIe); err != nil {
			return nvtopo.Link{}, fieldError(path.Child("pcie"), "%w", err)
		}
	}
	if class.PCIe != nvtopo.PCIeUnknown && level != class.PCIe {
		return nvtopo.Link{}, fieldError(path.Child("pcie"), "%s contradicts class %s", level, class)
	}
	// Below 1 kB/s the link would vanish in the library's unit.
	bytes := l.Bandwidth.Value()
	if bytes < 1000 || bytes > maxBytesPerSecond {
		return nvtopo.Link{}, fieldError(path.Child("bandwidth"), "%s is not between 1k and 100T bytes per second", l.Bandwidth.String())
	}
	if l.LatencyNanoseconds < 0 {
		return nvtopo.Link{}, fieldError(path.Child("latencyNanoseconds"), "%d is negative", l.LatencyNanoseconds)
	}
	link := nvtopo.NewLink(class, level, 0, 0, l.Switched)
	link.Bandwidth = bytes / 1000
	if l.LatencyNanoseconds > 0 {
		link.Latency = l.LatencyNanoseconds
	}
	return link, nil
}

// fabricKind maps the class name of a fabric in the resource to the
// library's, and any other name to KindUnknown.
func fabricKind(class string) nvtopo.LinkKind {
	switch class {
	case "NVLink":
		return nvtopo.KindNVLink
	case "XGMI":
		return nvtopo.KindXGMI
	case "HCCS":
		return nvtopo.KindHCCS
	}
	return nvtopo.KindUnknown
}

func readClass(l *Link) (nvtopo.Class, error) {
	if kind := fabricKind(l.Class); kind != nvtopo.KindUnknown {
		if l.Lanes < 1 || l.Lanes > 64 {
			return nvtopo.Class{}, fmt.Errorf("%s needs lanes between 1 and 64, not %d", l.Class, l.Lanes)
		}
		return nvtopo.Class{Kind: kind, Lanes: int(l.Lanes)}, nil
	}
	level, err := nvtopo.ParsePCIeLevel(l.Class)
	switch {
	case err != nil || l.Class == "SOC":
		return nvtopo.Class{}, fmt.Errorf("%q is none of NVLink, XGMI, HCCS, PIX, PXB, PHB, NODE, SYS", l.Class)
	case l.Lanes != 0:
		return nvtopo.Class{}, fmt.Errorf("%s is a PCIe path and has no lanes, not %d", l.Class, l.Lanes)
	}
	return nvtopo.Class{Kind: nvtopo.KindPCIe, PCIe: level}, nil
}

// readNICs gives every resource's graph all adapters, each with the levels to
// that resource's GPUs.
func (r *reader) readNICs() (map[string][]nvtopo.NIC, error) {
	base := field.NewPath("spec", "nics")
	out := map[string][]nvtopo.NIC{}
	for i := range r.spec.NICs {
		nic, path := &r.spec.NICs[i], base.Index(i)
		if n := len(nic.Distances); n != 0 && n != len(r.spec.GPUs) {
			return nil, fieldError(path.Child("distances"), "%d entries for %d gpus", n, len(r.spec.GPUs))
		}
		levels := make([]nvtopo.PCIeLevel, len(nic.Distances))
		for j, s := range nic.Distances {
			if s == "" {
				continue
			}
			var err error
			if levels[j], err = nvtopo.ParsePCIeLevel(s); err != nil {
				return nil, fieldError(path.Child("distances").Index(j), "%w", err)
			}
		}
		for res, list := range r.members {
			n := nvtopo.NIC{Name: nic.Name, NUMANode: int(nic.NUMANode)}
			for _, d := range list {
				if len(levels) > 0 {
					n.Levels = append(n.Levels, levels[d])
				}
			}
			out[res] = append(out[res], n)
		}
	}
	return out, nil
}

func resourceOf(d *GPU) string { return cmp.Or(d.Resource, DefaultResource) }

func fieldError(path *field.Path, format string, args ...any) error {
	return fmt.Errorf("%s: %w", path, fmt.Errorf(format, args...))
}
