// SPDX-License-Identifier: Apache-2.0

package baseline

import (
	"slices"
	"testing"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// box builds two-socket machines: GPUs of the first half on NUMA node 0, PCIe
// level by the function, NVLinks by pair.
func box(tb testing.TB, numa []int, level func(i, j int) nvtopo.PCIeLevel, lanes func(i, j int) int) *nvtopo.Graph {
	tb.Helper()
	gpus := make([]nvtopo.GPU, len(numa))
	links := map[[2]int]nvtopo.Link{}
	for j := range numa {
		gpus[j] = nvtopo.GPU{Index: j, NUMANode: numa[j]}
		for i := range j {
			class := nvtopo.Class{Kind: nvtopo.KindPCIe, PCIe: level(i, j)}
			if n := lanes(i, j); n > 0 {
				class = nvtopo.Class{Kind: nvtopo.KindNVLink, Lanes: n}
			}
			links[[2]int{i, j}] = nvtopo.NewLink(class, level(i, j), 0, 25_000_000, false)
		}
	}
	g, err := nvtopo.NewGraph(gpus, []nvtopo.NUMANode{{ID: 0}, {ID: 1}}, nil, links)
	if err != nil {
		tb.Fatal(err)
	}
	return g
}

var halves = []int{0, 0, 0, 0, 1, 1, 1, 1}

func pairs(near nvtopo.PCIeLevel) func(i, j int) nvtopo.PCIeLevel {
	return func(i, j int) nvtopo.PCIeLevel {
		switch {
		case i/2 == j/2:
			return nvtopo.PCIePIX
		case i/4 == j/4:
			return near
		}
		return nvtopo.PCIeSYS
	}
}

func roots(numa []int) func(i, j int) nvtopo.PCIeLevel {
	return func(i, j int) nvtopo.PCIeLevel {
		if numa[i] == numa[j] {
			return nvtopo.PCIeNODE
		}
		return nvtopo.PCIeSYS
	}
}

func dgx1(tb testing.TB) *nvtopo.Graph {
	tb.Helper()
	lanes := map[[2]int]int{
		{0, 1}: 1, {0, 2}: 1, {0, 3}: 2, {0, 4}: 2, {1, 2}: 2, {1, 3}: 1, {1, 5}: 2, {2, 3}: 2,
		{2, 6}: 1, {3, 7}: 1, {4, 5}: 1, {4, 6}: 1, {4, 7}: 2, {5, 6}: 2, {5, 7}: 1, {6, 7}: 2,
	}
	return box(tb, halves, pairs(nvtopo.PCIePHB), func(i, j int) int { return lanes[[2]int{i, j}] })
}

func hgx(tb testing.TB) *nvtopo.Graph {
	tb.Helper()
	return box(tb, halves, pairs(nvtopo.PCIeNODE), func(int, int) int { return 12 })
}

func bridged(tb testing.TB) *nvtopo.Graph {
	tb.Helper()
	return box(tb, halves, roots(halves), func(i, j int) int {
		if i/2 == j/2 {
			return 4
		}
		return 0
	})
}

func mixed(tb testing.TB) *nvtopo.Graph {
	tb.Helper()
	numa := []int{0, 0, 1, 1, 1}
	return box(tb, numa, func(i, j int) nvtopo.PCIeLevel {
		if i >= 2 {
			return nvtopo.PCIePIX
		}
		return roots(numa)(i, j)
	}, func(i, j int) int {
		if i == 0 && j == 1 {
			return 12
		}
		return 0
	})
}

func quadAndPair(tb testing.TB) *nvtopo.Graph {
	tb.Helper()
	numa := []int{0, 0, 0, 0, 1, 1}
	return box(tb, numa, roots(numa), func(i, j int) int {
		if numa[i] == numa[j] {
			return 4
		}
		return 0
	})
}

// TestPublishedPicks compares the baselines with observed choices of the systems themselves.
func TestPublishedPicks(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		graph    func(testing.TB) *nvtopo.Graph
		used     []int
		k        int
		wantHAMi []int
		wantNVDP []int // nil: the padded set, which is none
	}{
		"S01": {graph: mixed, k: 3, wantHAMi: []int{0, 1, 4}},
		"S03": {graph: bridged, used: []int{3}, k: 1, wantHAMi: []int{2}, wantNVDP: []int{0}},
		"S04": {graph: hgx, used: []int{0}, k: 2, wantHAMi: []int{6, 7}, wantNVDP: []int{2, 3}},
		"S06": {graph: hgx, used: []int{4}, k: 1, wantHAMi: []int{5}, wantNVDP: []int{0}},
		"S08": {graph: dgx1, used: []int{1, 6}, k: 4, wantHAMi: []int{0, 2, 3, 4}, wantNVDP: []int{0, 4, 5, 7}},
		"S10": {graph: dgx1, used: []int{0, 1, 2, 6}, k: 2, wantHAMi: []int{4, 7}, wantNVDP: []int{4, 5}},
		"S12": {graph: dgx1, used: []int{4, 5, 6}, k: 2, wantHAMi: []int{2, 3}, wantNVDP: []int{0, 3}},
		"S14": {graph: dgx1, k: 2, wantHAMi: []int{6, 7}, wantNVDP: []int{0, 3}},
		"S17": {graph: quadAndPair, k: 2, wantHAMi: []int{4, 5}, wantNVDP: []int{0, 1}},
		"S22": {graph: bridged, used: []int{0}, k: 2, wantHAMi: []int{6, 7}, wantNVDP: []int{2, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := tc.graph(t)
			free := g.Healthy() &^ nvtopo.MaskOf(tc.used...)
			if got, _ := PairScore().Pick(g, free, tc.k); !slices.Equal(got.Positions(), tc.wantHAMi) {
				t.Errorf("pair score: %v, want %v", got.Positions(), tc.wantHAMi)
			}
			got, ok := BestPartition().Pick(g, free, tc.k)
			if ok != (tc.wantNVDP != nil) || ok && !slices.Equal(got.Positions(), tc.wantNVDP) {
				t.Errorf("best partition: %v (%t), want %v", got.Positions(), ok, tc.wantNVDP)
			}
		})
	}
}

func TestGreedyPicks(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		picker Picker
		free   nvtopo.Mask
		k      int
		want   []int
	}{
		"prim begins with the first double link":        {ClosestPair(), 0xff, 4, []int{0, 3, 2, 1}},
		"prim of one GPU":                               {ClosestPair(), 0xf0, 1, []int{4}},
		"nearest neighbour walks along double links":    {NearestNeighbour(), 0xff, 4, []int{0, 3, 2, 1}},
		"nearest neighbour falls back to a single link": {NearestNeighbour(), 0x83, 2, []int{0, 1}},
		"nearest neighbour looks at the last GPU only":  {NearestNeighbour(), nvtopo.MaskOf(0, 1, 3, 7), 3, []int{0, 3, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, ok := tc.picker.Pick(dgx1(t), tc.free, tc.k)
			if want := nvtopo.MaskOf(tc.want...); !ok || got != want {
				t.Errorf("picked %v (%t), want %v", got.Positions(), ok, want.Positions())
			}
		})
	}
}

// TestObjectiveDominance: no baseline beats the objective. The ring of a baseline's set is never better
// than that of the set the objective picks.
func TestObjectiveDominance(t *testing.T) {
	t.Parallel()
	for name, build := range map[string]func(testing.TB) *nvtopo.Graph{"dgx1": dgx1, "hgx": hgx, "bridged": bridged, "mixed": mixed} {
		g := build(t)
		tables := nvtopo.NewTables(g, nvtopo.DefaultWeights())
		for free := range nvtopo.FullMask(g.Len()) + 1 {
			for k := 1; k <= free.Len(); k++ {
				best, _ := tables.Pick(free, free, k, nvtopo.Constraint{})
				for _, p := range All(1) {
					got, ok := p.Pick(g, free, k)
					if again, _ := p.Pick(g, free, k); again != got {
						t.Errorf("%s, %s: two answers to one question", name, p.Name())
					}
					if ok && (got.Len() != k || got&^free != 0 || tables.Ring(got) > tables.Ring(best)) {
						t.Errorf("%s, %s, free %v, k %d: %v, objective %v", name, p.Name(), free.Positions(), k, got.Positions(), best.Positions())
					}
				}
			}
		}
	}
}

// TestPickerErrors: pickers refuse more than there is.
func TestPickerErrors(t *testing.T) {
	t.Parallel()
	for _, p := range All(1) {
		if got, ok := p.Pick(hgx(t), 0x3, 3); ok {
			t.Errorf("%s picked %v of two free GPUs", p.Name(), got.Positions())
		}
		if got, ok := p.Pick(hgx(t), ^nvtopo.Mask(0), 8); !ok || got != 0xff {
			t.Errorf("%s picked %v (%t) of 8 when asked for all", p.Name(), got.Positions(), ok)
		}
	}
}

func BenchmarkPickers(b *testing.B) {
	g := dgx1(b)
	for _, p := range All(1) {
		b.Run(p.Name(), func(b *testing.B) {
			for b.Loop() {
				p.Pick(g, 0xff, 4)
			}
		})
	}
}
