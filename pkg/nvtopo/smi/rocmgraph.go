// SPDX-License-Identifier: Apache-2.0

package smi

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// maxROCmValue bounds weights and hops.
const maxROCmValue = 10_000

// socketHops is the number of hops from which a PCIe path crosses sockets: 2 hops go through the CPU of
// both GPUs, more go through two CPUs.
const socketHops = 3

// graph converts complete tables into a link graph.
func (r *rocm) graph(opts Options) (*nvtopo.Graph, error) {
	t := r.tables[rocmLinks]
	gpus := make([]nvtopo.GPU, len(t.names))
	for i, n := range t.numbers {
		gpus[i] = nvtopo.GPU{UUID: "GPU-" + strconv.Itoa(n), Index: n, Model: opts.Model}
		if err := r.place(&gpus[i], t.names[i], opts.NUMA); err != nil {
			return nil, err
		}
	}
	links := map[[2]int]nvtopo.Link{}
	for i := range gpus {
		for j := i + 1; j < len(gpus); j++ {
			l, err := r.link(gpus, i, j, opts)
			if err != nil {
				return nil, err
			}
			links[[2]int{i, j}] = l
		}
	}
	nodes := nodesOf(gpus)
	if len(opts.NUMA) > 0 {
		nodes = slices.Clone(opts.NUMA)
	}
	g, err := nvtopo.NewGraph(gpus, nodes, nil, links)
	if err != nil {
		return nil, fmt.Errorf("building the graph: %w", err)
	}
	return g, nil
}

// place sets a GPU's NUMA node: that of sysfs, else that of the nearest CPUs. The CPUs are numactl's.
func (r *rocm) place(d *nvtopo.GPU, name string, known []nvtopo.NUMANode) error {
	d.NUMANode = nvtopo.UnknownNUMA
	n, ok := r.numa[name]
	if !ok {
		return nil
	}
	d.NUMANode = n.affinity
	if n.affinity == nvtopo.UnknownNUMA {
		d.NUMANode = n.node
	}
	if d.NUMANode == nvtopo.UnknownNUMA || len(known) == 0 {
		return nil
	}
	k := slices.IndexFunc(known, func(m nvtopo.NUMANode) bool { return m.ID == d.NUMANode })
	if k < 0 {
		return n.line.errorf(n.at, "NUMA node %d is not among the %d nodes that numactl lists", d.NUMANode, len(known))
	}
	d.CPUs = known[k].CPUs
	return nil
}

// link returns the link of a pair.
func (r *rocm) link(gpus []nvtopo.GPU, i, j int, opts Options) (nvtopo.Link, error) {
	weight, err := r.number(rocmWeights, i, j, maxROCmValue)
	if err != nil {
		return nvtopo.Link{}, err
	}
	hops, err := r.number(rocmHops, i, j, maxROCmValue)
	if err != nil {
		return nvtopo.Link{}, err
	}
	switch kind := r.tables[rocmLinks].rows[i].values[j].text; kind {
	case "XGMI":
		steps := 1
		if weight > 0 {
			steps = weight / xgmiHopWeight
			if weight%xgmiHopWeight != 0 || steps > maxXGMIHops {
				return nvtopo.Link{}, r.errorAt(i, j, "XGMI of weight %d: want a multiple of %d, one hop each, up to %d",
					weight, xgmiHopWeight, xgmiHopWeight*maxXGMIHops)
			}
		}
		return xgmiLink(steps, opts), nil
	case "PCIE":
		return nvtopo.NewLink(nvtopo.Class{Kind: nvtopo.KindPCIe, PCIe: pcieLevel(gpus, i, j, hops)},
			nvtopo.PCIeUnknown, opts.PCIeGen, 0, false), nil
	default:
		return nvtopo.Link{}, r.errorAt(i, j, "want XGMI or PCIE, found %s", quote(kind))
	}
}

// xgmiLink returns a link over the given number of physical hops. The text does not give the links of a
// hop: one is assumed.
func xgmiLink(steps int, opts Options) nvtopo.Link {
	class := nvtopo.Class{Kind: nvtopo.KindXGMI, Lanes: 1}
	perLink := nvtopo.FabricPerLink(nvtopo.KindXGMI, opts.Model)
	return nvtopo.NewLink(class, nvtopo.PCIeUnknown, opts.PCIeGen, perLink, false).Over(steps)
}

// pcieLevel returns whether a path is within or across sockets, as NODE or SYS: the hops show no more.
// Without hops the NUMA nodes decide.
func pcieLevel(gpus []nvtopo.GPU, i, j, hops int) nvtopo.PCIeLevel {
	near := hops < socketHops
	if hops == 0 {
		near = gpus[i].NUMANode == gpus[j].NUMANode && gpus[i].NUMANode != nvtopo.UnknownNUMA
	}
	if near {
		return nvtopo.PCIeNODE
	}
	return nvtopo.PCIeSYS
}
