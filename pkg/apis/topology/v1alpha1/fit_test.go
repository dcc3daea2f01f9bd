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
// with two hyper-threads.
func madeOf(gpus, nodes, cores, nics int) *NodeGPUTopologySpec {
	s := &NodeGPUTopologySpec{GPUs: []GPU{}, NUMANodes: []NUMANode{}, Links: []Link{}}
	for i := range gpus {
		s.GPUs = append(s.GPUs, GPU{ID: fmt.Sprintf("GPU-%d", i), Index: int32(i), NUMANode: -1})
		for j := range i {
			s.Links = append(s.Links, Link{A: int32(j), B: int32(i), Class: "PIX", Bandwidth: resource.MustParse("20G")})
		}
	}
	for i := range nodes {
		n := NUMANode{ID: int32(i), CPUs: fmt.Sprintf("%d-%d", 2*i*cores, 2*(i+1)*cores-1), Distances: make([]int32, nodes)}
		for j := range cores {
			n.Siblings = append(n.Siblings, fmt.Sprintf("%d,%d", 2*i*cores+j, 2*i*cores+cores+j))
		}
		s.NUMANodes = append(s.NUMANodes, n)
	}
	for i := range nics {
		s.NICs = append(s.NICs, NIC{Name: fmt.Sprintf("mlx5_%d", i), Distances: make([]string, gpus)})
	}
	return s
}

// TestLargeMachineFit: large machines fit the schema. It has the forms of machines at the limits
// and beyond them.
func TestLargeMachineFit(t *testing.T) {
	const links, rows, siblings, threads, distances, nics, levels = "links", "rows", "siblings", "threadsPerCore", "distances", "nics", "levels"
	uneven := madeOf(1, 2, 300, 0)
	uneven.NUMANodes[1].Siblings[0], uneven.NUMANodes[1].Siblings[1] = uneven.NUMANodes[1].Siblings[1], uneven.NUMANodes[1].Siblings[0]
	tests := map[string]struct {
		spec *NodeGPUTopologySpec
		want map[string]int // how many of what are left
	}{
		"20 GPUs at length":                   {madeOf(20, 0, 0, 0), map[string]int{links: 190}},
		"21 GPUs in rows":                     {madeOf(21, 0, 0, 0), map[string]int{rows: 20}},
		"64 GPUs in rows":                     {madeOf(64, 0, 0, 0), map[string]int{rows: 63}},
		"512 cores at length":                 {madeOf(1, 8, 64, 0), map[string]int{siblings: 512, distances: 64}},
		"520 cores in short":                  {madeOf(1, 8, 65, 0), map[string]int{threads: 8, distances: 64}},
		"600 cores that are counted unevenly": {uneven, map[string]int{threads: 1, siblings: 300, distances: 4}},
		"36 NUMA nodes":                       {madeOf(1, 36, 0, 0), map[string]int{distances: 36 * 36}},
		"37 NUMA nodes without distances":     {madeOf(1, 37, 0, 0), nil},
		"64 adapters of 8 GPUs":               {madeOf(8, 0, 0, 64), map[string]int{links: 28, nics: 64, levels: 512}},
		"64 adapters of 9 GPUs":               {madeOf(9, 0, 0, 64), map[string]int{links: 36, nics: 64}},
		"100 adapters of 4 GPUs":              {madeOf(4, 0, 0, 100), map[string]int{links: 6, nics: 64, levels: 256}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if err := tc.spec.Fit(); err != nil {
				t.Fatal(err)
			}
			got := map[string]int{links: len(tc.spec.Links), rows: len(tc.spec.LinkRows), nics: len(tc.spec.NICs)}
			for _, n := range tc.spec.NUMANodes {
				got[siblings] += len(n.Siblings)
				got[distances] += len(n.Distances)
				if n.ThreadsPerCore > 0 {
					got[threads]++
				}
			}
			for _, n := range tc.spec.NICs {
				got[levels] += len(n.Distances)
			}
			for what, n := range got {
				if n != tc.want[what] {
					t.Errorf("%d %s, want %d", n, what, tc.want[what])
				}
			}
			for _, row := range tc.spec.LinkRows {
				if len(row) > 1071 || strings.Count(row, " ") > nvtopo.MaxGPUs {
					t.Errorf("a row of %d characters", len(row))
				}
			}
		})
	}
}

// TestLinkKindFit: kinds of links are merged until they fit. A machine of too many GPUs for links
// at length and too many kinds for rows loses what only refines a choice, and is published.
func TestLinkKindFit(t *testing.T) {
	levels := []string{"PIX", "PXB", "PHB", "NODE", "SYS"}
	of := func(change func(i int, l *Link)) *NodeGPUTopologySpec {
		s := madeOf(21, 0, 0, 0)
		for i := range s.Links {
			s.Links[i].Class = "NVLink"
			change(i, &s.Links[i])
		}
		return s
	}
	tests := map[string]struct {
		spec                    *NodeGPUTopologySpec
		wantKinds               int
		wantLatencies, wantPCIe bool
		wantErr                 string
	}{
		"32 kinds":                          {spec: of(func(i int, l *Link) { l.LatencyNanoseconds, l.PCIe = int64(1+i%32), "PIX" }), wantKinds: 32, wantLatencies: true, wantPCIe: true},
		"33 latencies":                      {spec: of(func(i int, l *Link) { l.LatencyNanoseconds, l.PCIe = int64(1+i%33), levels[i%5] }), wantKinds: 5, wantPCIe: true},
		"as many PCIe levels of each width": {spec: of(func(i int, l *Link) { l.Lanes, l.PCIe = int32(1+i%7), levels[i/7%5] }), wantKinds: 7},
		"33 bandwidths":                     {spec: of(func(i int, l *Link) { l.Bandwidth = *resource.NewQuantity(int64(1000+i%33), resource.DecimalSI) }), wantErr: "spec.links: 210 of more than 32 kinds"},
		"65 NUMA nodes":                     {spec: madeOf(2, 65, 0, 0), wantErr: "spec.numaNodes: 65 entries, at most 64"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			err := tc.spec.Fit()
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
			for _, k := range tc.spec.LinkKinds {
				latencies, levels = latencies || k.LatencyNanoseconds > 0, levels || k.PCIe != ""
			}
			if len(tc.spec.Links) != 0 || len(tc.spec.LinkKinds) != tc.wantKinds || latencies != tc.wantLatencies || levels != tc.wantPCIe {
				t.Errorf("%d links, %d kinds, with latencies %t, with PCIe levels %t, want none, %d, %t and %t", len(tc.spec.Links), len(tc.spec.LinkKinds),
					latencies, levels, tc.wantKinds, tc.wantLatencies, tc.wantPCIe)
			}
		})
	}
}

// TestLargeMachineGraph: a large machine is the same graph in the short form: what is said in short
// because it is long reads the same.
func TestLargeMachineGraph(t *testing.T) {
	long := &NodeGPUTopology{Spec: *madeOf(21, 2, 300, 0)}
	for i := range long.Spec.NUMANodes {
		long.Spec.NUMANodes[i].Distances = []int32{10, 10}
	}
	short := long.DeepCopy()
	if err := short.Spec.Fit(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(throughJSON(t, long), throughJSON(t, short), cmp.AllowUnexported(nvtopo.Graph{})); diff != "" {
		t.Errorf("another graph (-at length,+in short):\n%s", diff)
	}
}

// TestCatalogueFit: the machines of the catalogue fit. Their graphs stay as releases of level 1
// read and write them.
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
