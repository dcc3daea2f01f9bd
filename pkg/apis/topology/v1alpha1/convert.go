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

// reader carries one object's spec through the conversion, with the positions
// that the links and adapters refer to.
type reader struct {
	spec     *NodeGPUTopologySpec
	nodes    []nvtopo.NUMANode
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

// indexGPUs checks the identity of every GPU and fixes the position it gets.
func (r *reader) indexGPUs() error {
	base := field.NewPath("spec", "gpus")
	r.members, r.position = map[string][]int{}, make([]int, len(r.spec.GPUs))
	ids, indices := map[string]bool{}, map[int32]bool{}
	for i := range r.spec.GPUs {
		d, path := &r.spec.GPUs[i], base.Index(i)
		if d.ID == "" || ids[d.ID] {
			return fieldError(path.Child("id"), "%q is empty or there twice", d.ID)
		}
		ids[d.ID] = true
		if indices[d.Index] || d.Index < 0 {
			return fieldError(path.Child("index"), "%d is negative or there twice", d.Index)
		}
		indices[d.Index] = true
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
