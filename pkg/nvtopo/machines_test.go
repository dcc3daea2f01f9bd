// SPDX-License-Identifier: Apache-2.0

package nvtopo

import (
	"fmt"
	"testing"
)

// machine describes a test graph: NUMA nodes and PCIe levels of the GPUs, and
// fabric links on top of them.
type machine struct {
	numa      []int
	distances [][]int
	level     func(i, j int) PCIeLevel // i < j
	lanes     map[[2]int]int           // direct NVLinks
	switched  []int                    // active links to the switch per GPU
	models    []string
	equal     bool // all links equally fast, though not of equal class and latency
}

// Levels of the usual two-socket box: pairs under one switch, near inside a
// NUMA node, SYS across.
func paired(numa []int, near PCIeLevel) func(i, j int) PCIeLevel {
	return func(i, j int) PCIeLevel {
		switch {
		case i/2 == j/2:
			return PCIePIX
		case numa[i] == numa[j]:
			return near
		}
		return PCIeSYS
	}
}

// Every GPU under its own root port.
func rooted(numa []int, near PCIeLevel) func(i, j int) PCIeLevel {
	return func(i, j int) PCIeLevel {
		if numa[i] == numa[j] {
			return near
		}
		return PCIeSYS
	}
}

func (m machine) graph(tb testing.TB) *Graph {
	tb.Helper()
	n := len(m.numa)
	gpus := make([]GPU, n)
	links := map[[2]int]Link{}
	most := -1
	for i := range n {
		model := "Test V100"
		if m.models != nil {
			model = m.models[i]
		}
		gpus[i] = GPU{UUID: fmt.Sprintf("GPU-%d", i), Index: i, Model: model, NUMANode: m.numa[i]}
		most = max(most, m.numa[i])
		for j := range i {
			level := m.level(j, i)
			lanes := m.lanes[[2]int{j, i}]
			if m.switched != nil {
				lanes = min(m.switched[i], m.switched[j])
			}
			class := Class{Kind: KindPCIe, PCIe: level}
			if lanes > 0 {
				class = Class{Kind: KindNVLink, Lanes: lanes}
			}
			l := NewLink(class, level, 0, NVLinkPerLink(model), m.switched != nil)
			if m.equal {
				l.Bandwidth = 1_000_000
			}
			links[[2]int{j, i}] = l
		}
	}
	nodes := make([]NUMANode, most+1)
	for i := range nodes {
		nodes[i].ID = i
		if m.distances != nil {
			nodes[i].Distances = m.distances[i]
		}
	}
	g, err := NewGraph(gpus, nodes, nil, links)
	if err != nil {
		tb.Fatalf("building the graph: %v", err)
	}
	return g
}

func twoSockets(n int) []int {
	numa := make([]int, n)
	for i := n / 2; i < n; i++ {
		numa[i] = 1
	}
	return numa
}

func same(n, v int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = v
	}
	return out
}

var dgx1Lanes = map[[2]int]int{
	{0, 1}: 1, {0, 2}: 1, {0, 3}: 2, {0, 4}: 2, {1, 2}: 2, {1, 3}: 1, {1, 5}: 2, {2, 3}: 2,
	{2, 6}: 1, {3, 7}: 1, {4, 5}: 1, {4, 6}: 1, {4, 7}: 2, {5, 6}: 2, {5, 7}: 1, {6, 7}: 2,
}

var nps4Distances = [][]int{{10, 12, 32, 32}, {12, 10, 32, 32}, {32, 32, 10, 12}, {32, 32, 12, 10}}

// machines are the shapes of machine the tests know, by name.
func machines() map[string]machine {
	two8 := twoSockets(8)
	nps4 := []int{0, 0, 1, 1, 2, 2, 3, 3}
	mix5 := []int{0, 0, 1, 1, 1}
	quad := []int{0, 0, 0, 0, 1, 1}
	unknown := []int{0, 0, UnknownNUMA, UnknownNUMA, 1, UnknownNUMA}
	pairs := map[[2]int]int{{0, 1}: 4, {2, 3}: 4, {4, 5}: 4, {6, 7}: 4}
	two16 := twoSockets(16)
	return map[string]machine{
		"dgx1v":      {numa: two8, level: paired(two8, PCIePHB), lanes: dgx1Lanes},
		"hgx8":       {numa: two8, level: paired(two8, PCIeNODE), switched: same(8, 12)},
		"hgx8-down3": {numa: two8, level: paired(two8, PCIeNODE), switched: []int{12, 12, 12, 0, 12, 12, 12, 12}},
		"pair8":      {numa: two8, level: rooted(two8, PCIeNODE), lanes: pairs},
		"split8": {
			numa: two8, level: func(int, int) PCIeLevel { return PCIeSYS },
			lanes: map[[2]int]int{{0, 2}: 12, {1, 3}: 12, {4, 5}: 12, {6, 7}: 12},
		},
		"pcie8":     {numa: two8, level: paired(two8, PCIeNODE)},
		"nps4x8":    {numa: nps4, level: rooted(nps4, PCIePHB), distances: nps4Distances},
		"rtx8000x4": {numa: []int{0, 0, 1, 1}, level: rooted([]int{0, 0, 1, 1}, PCIeNODE), lanes: map[[2]int]int{{0, 3}: 2, {1, 2}: 2}},
		"mix5": {
			numa: mix5, lanes: map[[2]int]int{{0, 1}: 12},
			level: func(i, j int) PCIeLevel {
				switch {
				case mix5[i] != mix5[j]:
					return PCIeSYS
				case i == 0:
					return PCIeNODE
				}
				return PCIePIX
			},
		},
		"quadpair6": {
			numa: quad, level: rooted(quad, PCIeNODE),
			lanes: map[[2]int]int{{0, 1}: 4, {0, 2}: 4, {0, 3}: 4, {1, 2}: 4, {1, 3}: 4, {2, 3}: 4, {4, 5}: 4},
		},
		"unknown6":  {numa: unknown, level: func(i, j int) PCIeLevel { return PCIeLevel(1 + (i+j)%5) }, lanes: map[[2]int]int{{1, 2}: 3}},
		"models6":   {numa: quad, level: rooted(quad, PCIePXB), models: []string{"A", "B", "A", "B", "B", "A"}, lanes: map[[2]int]int{{0, 2}: 2, {0, 1}: 4}},
		"unlevel4":  {numa: []int{0, 1, 0, 1}, level: func(i, j int) PCIeLevel { return PCIeLevel((i * j) % 3) }},
		"equal6":    {numa: quad, level: paired(quad, PCIePHB), lanes: map[[2]int]int{{0, 3}: 1, {1, 4}: 2}, equal: true},
		"single":    {numa: []int{0}, level: rooted([]int{0}, PCIeNODE)},
		"dgx2":      {numa: two16, level: paired(two16, PCIeNODE), switched: same(16, 6)},
		"irregular": irregular(8, 7),
	}
}

// irregular is a machine without any symmetry, from a small linear generator.
func irregular(n int, seed uint32) machine {
	next := func(m uint32) int {
		seed = seed*1664525 + 1013904223
		return int((seed >> 8) % m)
	}
	m := machine{numa: make([]int, n), lanes: map[[2]int]int{}}
	levels := map[[2]int]PCIeLevel{}
	for i := range n {
		m.numa[i] = i % 3 * (1 - next(2)) // node 2 is always there, at i = 2
		if i == 2 {
			m.numa[i] = 2
		}
		for j := range i {
			levels[[2]int{j, i}] = PCIeLevel(1 + next(5))
			if next(3) == 0 {
				m.lanes[[2]int{j, i}] = 1 + next(4)
			}
		}
	}
	m.level = func(i, j int) PCIeLevel { return levels[[2]int{i, j}] }
	m.distances = [][]int{{10, 15, 21}, {15, 10, 30}, {12, 28, 10}} // not symmetric
	return m
}

func testTables(tb testing.TB, name string) *Tables {
	tb.Helper()
	m, ok := machines()[name]
	if !ok {
		tb.Fatalf("no test machine %q", name)
	}
	return NewTables(m.graph(tb), DefaultWeights())
}
