// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
)

// madeOf is a machine of some GPUs and NUMA nodes, with adapters, each node of some cores
// with two hyper-threads that are neighbours.
func madeOf(gpus, nodes, cores, nics int) *NodeGPUTopologySpec {
	s := &NodeGPUTopologySpec{GPUs: []GPU{}, NUMANodes: []NUMANode{}}
	s.LinkKinds = []LinkKind{{Name: "PIX", Class: "PIX", Bandwidth: resource.MustParse("20G")}}
	for i := range gpus {
		s.GPUs = append(s.GPUs, GPU{ID: fmt.Sprintf("GPU-%d", i), Index: int32(i), NUMANode: -1})
		if i < gpus-1 {
			s.LinkRows = append(s.LinkRows, strings.TrimSuffix(strings.Repeat("PIX ", gpus-1-i), " "))
		}
	}
	for i := range nodes {
		n := NUMANode{ID: int32(i), CPUs: fmt.Sprintf("%d-%d", 2*i*cores, 2*(i+1)*cores-1), Distances: make([]int32, nodes)}
		for j := range cores {
			first := 2 * (i*cores + j)
			n.Siblings = append(n.Siblings, fmt.Sprintf("%d,%d", first, first+1))
		}
		s.NUMANodes = append(s.NUMANodes, n)
	}
	for i := range nics {
		s.NICs = append(s.NICs, NIC{Name: fmt.Sprintf("mlx5_%d", i), Distances: make([]string, gpus)})
	}
	return s
}

// TestLargeMachineFit: large machines fit the schema. It has machines at the limits and beyond
// them.
func TestLargeMachineFit(t *testing.T) {
	const siblings, distances, nics, levels = "siblings", "distances", "nics", "levels"
	tests := map[string]struct {
		spec *NodeGPUTopologySpec
		want map[string]int // how many of what are left
	}{
		"64 GPUs":                             {madeOf(64, 0, 0, 0), nil},
		"512 cores that are counted unevenly": {madeOf(1, 8, 64, 0), map[string]int{siblings: 512, distances: 64}},
		"520 cores that are counted unevenly": {madeOf(1, 8, 65, 0), map[string]int{distances: 64}},
		"36 NUMA nodes":                       {madeOf(1, 36, 0, 0), map[string]int{distances: 36 * 36}},
		"37 NUMA nodes without distances":     {madeOf(1, 37, 0, 0), nil},
		"64 adapters of 8 GPUs":               {madeOf(8, 0, 0, 64), map[string]int{nics: 64, levels: 512}},
		"64 adapters of 9 GPUs":               {madeOf(9, 0, 0, 64), map[string]int{nics: 64}},
		"100 adapters of 4 GPUs":              {madeOf(4, 0, 0, 100), map[string]int{nics: 64, levels: 256}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if err := tc.spec.Fit(); err != nil {
				t.Fatal(err)
			}
			got := map[string]int{nics: len(tc.spec.NICs)}
			for _, n := range tc.spec.NUMANodes {
				got[siblings] += len(n.Siblings)
				got[distances] += len(n.Distances)
			}
			for _, n := range tc.spec.NICs {
				got[levels] += len(n.Distances)
			}
			for what, n := range got {
				if n != tc.want[what] {
					t.Errorf("%d %s, want %d", n, what, tc.want[what])
				}
			}
		})
	}
}

// TestLinkKindFit: kinds of links are merged until they fit. A machine of too many kinds loses
// what only refines a choice, and is published.
func TestLinkKindFit(t *testing.T) {
	levels := []nvtopo.PCIeLevel{nvtopo.PCIePIX, nvtopo.PCIePXB, nvtopo.PCIePHB, nvtopo.PCIeNODE, nvtopo.PCIeSYS}
	of := func(change func(i int, l *nvtopo.Link)) *nvtopo.Graph {
		t.Helper()
		gpus, links := make([]nvtopo.GPU, 12), map[[2]int]nvtopo.Link{}
		for i := range gpus {
			gpus[i] = nvtopo.GPU{UUID: fmt.Sprintf("GPU-%d", i), Index: i, NUMANode: nvtopo.UnknownNUMA}
			for j := range i {
				l := nvtopo.NewLink(nvtopo.Class{Kind: nvtopo.KindNVLink, Lanes: 4}, nvtopo.PCIePIX, 4, 25_000_000, false)
				change(len(links), &l)
				links[[2]int{j, i}] = l
			}
		}
		g, err := nvtopo.NewGraph(gpus, nil, nil, links)
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	tests := map[string]struct {
		graph                   *nvtopo.Graph
		wantKinds               int
		wantLatencies, wantPCIe bool
		wantErr                 string
	}{
		"32 kinds":                          {graph: of(func(i int, l *nvtopo.Link) { l.Latency = int64(1 + i%32) }), wantKinds: 32, wantLatencies: true, wantPCIe: true},
		"33 latencies":                      {graph: of(func(i int, l *nvtopo.Link) { l.Latency, l.PCIe = int64(1+i%33), levels[i%5] }), wantKinds: 5, wantPCIe: true},
		"as many PCIe levels of each width": {graph: of(func(i int, l *nvtopo.Link) { l.Class.Lanes, l.PCIe = 1+i%7, levels[i/7%5] }), wantKinds: 7},
		"33 bandwidths":                     {graph: of(func(i int, l *nvtopo.Link) { l.Bandwidth = int64(1000 + i%33) }), wantErr: "spec.linkKinds: 33 entries, at most 32"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			obj := FromGraph("n", "", tc.graph)
			err := obj.Spec.Fit()
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Errorf("error %v, want %q", err, tc.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			latencies, levels := false, false
			for _, k := range obj.Spec.LinkKinds {
				latencies, levels = latencies || k.LatencyNanoseconds > 0, levels || k.PCIe != ""
			}
			if len(obj.Spec.LinkKinds) != tc.wantKinds || latencies != tc.wantLatencies || levels != tc.wantPCIe {
				t.Errorf("%d kinds, with latencies %t, with PCIe levels %t, want %d, %t and %t", len(obj.Spec.LinkKinds), latencies, levels,
					tc.wantKinds, tc.wantLatencies, tc.wantPCIe)
			}
			got := throughJSON(t, obj)
			for i := range got.Len() {
				for j := range i {
					if got, want := got.Link(i, j), tc.graph.Link(i, j); got.Class != want.Class || got.Bandwidth != want.Bandwidth {
						t.Errorf("link %d-%d is %+v, want %+v", i, j, got, want)
					}
				}
			}
		})
	}
}

// TestOversizedMachine: a machine of which too much would be left out cannot be published.
func TestOversizedMachine(t *testing.T) {
	const want = "spec.numaNodes: 65 entries, at most 64"
	if err := madeOf(2, 65, 0, 0).Fit(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %q", err, want)
	}
}

// TestCatalogueFit: the machines of the catalogue fit, and stay as they are.
func TestCatalogueFit(t *testing.T) {
	for _, name := range machine.Names() {
		m, err := machine.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		g, err := m.GraphFor("n")
		if err != nil {
			t.Fatal(err)
		}
		want, got := FromGraph("n", "", g), FromGraph("n", "", g)
		if err := got.Spec.Fit(); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s is changed (-want,+got):\n%s", name, diff)
		}
	}
}
