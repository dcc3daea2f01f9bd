// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
)

// bed is a machine under test.
type bed struct {
	name   string
	graph  *nvtopo.Graph
	tables *nvtopo.Tables // with all answer tables up to 16 GPUs
}

// catalogued are the measured machines of the catalogue.
var catalogued = []string{"dgx1-v100", "v100-pcie-8", "a6000-8-bridged", "h200-nvl-8", "dgx-h100", "dgx2"}

// synthetic are machines that the catalogue does not have.
var synthetic = []layout{
	{
		// Two tiers: four switches of four cards, each switch with two bridged pairs.
		name: "two-tier-16", gpus: 16, sockets: 2, gen: 4, perSwitch: 4,
		lanes: func(i, j int) int { return when(i/2 == j/2, 4) },
	},
	{
		// Two DGX-1V cube meshes, each GPU joined to its counterpart by one link:
		// 16 GPUs with few equal links, after MAPA's CubeMesh-16.
		name: "cube-mesh-16", gpus: 16, sockets: 2, gen: 3, perSwitch: 2, lanes: cubeMesh,
	},
}

// large has more GPUs than tables support: two sockets, five switches of four cards
// (the third switch is the first socket's), six bridged pairs.
var large = layout{
	name: "five-switches-20", gpus: 20, sockets: 2, gen: 4, perSwitch: 4, socketOf: func(i int) int { return min(i/12, 1) },
	lanes: func(i, j int) int { return when(i/2 == j/2 && i < 12, 4) },
}

// layout describes a synthetic machine.
type layout struct {
	name      string
	gpus      int
	sockets   int
	gen       nvtopo.PCIeGen
	perSwitch int                // GPUs under one PCIe switch; 1: every GPU has a root port of its own
	socketOf  func(i int) int    // nil: equal shares
	lanes     func(i, j int) int // direct NVLinks of a pair, i < j
}

func (l *layout) socket(i int) int {
	if l.socketOf != nil {
		return l.socketOf(i)
	}
	return i * l.sockets / l.gpus
}

func (l *layout) graph() (*nvtopo.Graph, error) {
	gpus := make([]nvtopo.GPU, l.gpus)
	nodes := make([]nvtopo.NUMANode, l.sockets)
	for s := range nodes {
		nodes[s].ID = s
	}
	links := map[[2]int]nvtopo.Link{}
	for j := range gpus {
		gpus[j] = nvtopo.GPU{UUID: fmt.Sprintf("GPU-%s-%d", l.name, j), Index: j, Model: l.name, NUMANode: l.socket(j)}
		for i := range j {
			level := nvtopo.PCIeSYS
			switch {
			case l.perSwitch > 1 && i/l.perSwitch == j/l.perSwitch:
				level = nvtopo.PCIePIX
			case l.socket(i) == l.socket(j):
				level = nvtopo.PCIeNODE
			}
			class := nvtopo.Class{Kind: nvtopo.KindPCIe, PCIe: level}
			if n := l.lanes(i, j); n > 0 {
				class = nvtopo.Class{Kind: nvtopo.KindNVLink, Lanes: n}
			}
			links[[2]int{i, j}] = nvtopo.NewLink(class, level, l.gen, nvtopo.NVLinkPerLink(""), false)
		}
	}
	g, err := nvtopo.NewGraph(gpus, nodes, nil, links)
	if err != nil {
		return nil, fmt.Errorf("building %s: %w", l.name, err)
	}
	return g, nil
}

func when(ok bool, n int) int {
	if ok {
		return n
	}
	return 0
}

// dgx1Lanes are the links of the DGX-1V, as in the catalogue.
var dgx1Lanes = map[[2]int]int{
	{0, 1}: 1, {0, 2}: 1, {0, 3}: 2, {0, 4}: 2, {1, 2}: 2, {1, 3}: 1, {1, 5}: 2, {2, 3}: 2,
	{2, 6}: 1, {3, 7}: 1, {4, 5}: 1, {4, 6}: 1, {4, 7}: 2, {5, 6}: 2, {5, 7}: 1, {6, 7}: 2,
}

func cubeMesh(i, j int) int {
	if i/8 != j/8 {
		return when(j == i+8, 1)
	}
	return dgx1Lanes[[2]int{i % 8, j % 8}]
}

// beds returns the machines of 8 and 16 GPUs without tables.
func beds() ([]bed, error) {
	var out []bed
	for _, name := range catalogued {
		m, err := machine.Lookup(name)
		if err != nil {
			return nil, err
		}
		g, err := m.Graph()
		if err != nil {
			return nil, err
		}
		out = append(out, bed{name: name, graph: g})
	}
	for i := range synthetic {
		g, err := synthetic[i].graph()
		if err != nil {
			return nil, err
		}
		out = append(out, bed{name: synthetic[i].name, graph: g})
	}
	return out, nil
}

// bedOf returns one machine by name, including the large one, without tables.
func bedOf(name string) (bed, error) {
	if name == large.name {
		g, err := large.graph()
		return bed{name: name, graph: g}, err
	}
	all, err := beds()
	if err != nil {
		return bed{}, err
	}
	for _, b := range all {
		if b.name == name {
			return b, nil
		}
	}
	return bed{}, fmt.Errorf("no machine %q in this benchmark", name)
}
