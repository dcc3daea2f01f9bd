// SPDX-License-Identifier: Apache-2.0

package nvtopo

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// divisionScore is the criteria by which divisions are compared, most important first.
type divisionScore struct {
	worst, sum      int64 // of the rings
	nodes, distance int   // sums over the subsets: NUMA nodes, greatest NUMA distance
}

func (s divisionScore) better(t divisionScore) bool {
	switch {
	case s.worst != t.worst:
		return s.worst > t.worst
	case s.sum != t.sum:
		return s.sum > t.sum
	case s.nodes != t.nodes:
		return s.nodes < t.nodes
	}
	return s.distance < t.distance
}

// bruteSplit tries every division.
func bruteSplit(b *brute, set Mask, sizes []int) []Mask {
	var best, current []Mask
	var bestScore divisionScore
	score := func(division []Mask) divisionScore {
		out := divisionScore{worst: -1}
		for _, s := range division {
			key := b.key(s)
			out.nodes += key.nodes
			out.distance += key.dist
			if s.Len() < 2 {
				continue
			}
			if r := b.ring(s); out.worst < 0 || r < out.worst {
				out.worst = r
			}
			out.sum += b.ring(s)
		}
		return out
	}
	var extend func(left Mask, i int)
	extend = func(left Mask, i int) {
		if i < len(sizes) {
			for _, s := range bruteSubsets(left, sizes[i]) {
				current = append(current, s)
				extend(left&^s, i+1)
				current = current[:len(current)-1]
			}
			return
		}
		// Divisions come in lexicographic order: the first of equals stays.
		if now := score(current); best == nil || now.better(bestScore) {
			best, bestScore = slices.Clone(current), now
		}
	}
	extend(set, 0)
	return best
}

// TestSplitBruteForce: Split equals brute force.
func TestSplitBruteForce(t *testing.T) {
	t.Parallel()
	sizes := [][]int{{2, 2}, {1, 3}, {3, 1}, {4}, {2, 2, 2}, {1, 1, 2}, {2, 3, 3}, {0, 2, 0, 3}, {2, 4}, {2, 4, 2}, {1, 1}, {4, 4}, {}, {0}, {2, 2, 2, 2}}
	for _, name := range []string{"dgx1v", "pair8", "nps4x8", "irregular", "unknown6", "hgx8-down3", "mix5", "hgx8", "pcie8"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := machines()[name].graph(t)
			tables, b := NewTables(g, DefaultWeights()), newBrute(g, DefaultWeights())
			rng := rand.New(rand.NewPCG(8, 9))
			for _, sz := range sizes {
				for i := range 4 {
					set := FullMask(g.Len())
					if i > 0 {
						set &= Mask(rng.Uint64() | rng.Uint64())
					}
					total := 0
					for _, k := range sz {
						total += k
					}
					got, ok := tables.Split(set, sz)
					if fits := total <= set.Len(); ok != fits {
						t.Fatalf("Split(%v, %v): %t, want %t", set.Positions(), sz, ok, fits)
					} else if !fits {
						continue
					}
					if diff := cmp.Diff(bruteSplit(b, set, sz), got, cmp.Comparer(slices.Equal[[]Mask])); diff != "" {
						t.Fatalf("Split(%v, %v) (-brute force +got):\n%s", set.Positions(), sz, diff)
					}
				}
			}
		})
	}
}

// TestSplitErrors: Split refuses sizes that do not fit.
func TestSplitErrors(t *testing.T) {
	t.Parallel()
	tables := testTables(t, "hgx8")
	for name, sizes := range map[string][]int{
		"more than there are":                  {4, 5},
		"a negative size":                      {-1, 2},
		"sizes whose sum overflows an integer": {1 << 62, 1 << 62, 1 << 62, 1 << 62},
	} {
		if got, ok := tables.Split(0xff, sizes); ok {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

// TestGroupRings: groups keep rings inside the fabric.
func TestGroupRings(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		machine string
		free    Mask
		g       int
		want    [][]int
	}{
		"quads of the DGX-1V are the two sockets":       {machine: "dgx1v", free: 0xff, g: 4, want: [][]int{{0, 1, 2, 3}, {4, 5, 6, 7}}},
		"pairs of the DGX-1V are double links":          {machine: "dgx1v", free: 0xff, g: 2, want: [][]int{{0, 3}, {1, 2}, {4, 7}, {5, 6}}},
		"bridged pairs":                                 {machine: "pair8", free: 0xff, g: 2, want: [][]int{{0, 1}, {2, 3}, {4, 5}, {6, 7}}},
		"one GPU is left over":                          {machine: "pair8", free: 0xfd, g: 2, want: [][]int{{2, 3}, {4, 5}, {6, 7}}},
		"pairs on 16 GPUs of one switch in NUMA order":  {machine: "dgx2", free: 0xf, g: 2, want: [][]int{{0, 1}, {2, 3}}},
		"pairs behind one switch are on one NUMA node":  {machine: "hgx8", free: 0xf7, g: 2, want: [][]int{{0, 1}, {4, 5}, {6, 7}}},
		"threes behind one switch are on one NUMA node": {machine: "hgx8", free: 0xff, g: 3, want: [][]int{{0, 1, 2}, {4, 5, 6}}},
		"more than there are":                           {machine: "pair8", free: 1, g: 2},
		"groups of nothing":                             {machine: "pair8", free: 0xff, g: 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got [][]int
			for _, s := range testTables(t, tc.machine).Groups(tc.free, tc.g) {
				got = append(got, s.Positions())
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("groups (-want +got):\n%s", diff)
			}
		})
	}
}

// TestSplitNUMA: of divisions with equal rings the one that crosses the fewest NUMA nodes is taken.
func TestSplitNUMA(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		machine string
		sizes   []int
		want    [][]int
	}{
		"four between two twos":                             {machine: "hgx8", sizes: []int{2, 4, 2}, want: [][]int{{0, 1}, {4, 5, 6, 7}, {2, 3}}},
		"a faster ring comes before NUMA nodes":             {machine: "rtx8000x4", sizes: []int{2, 2}, want: [][]int{{0, 3}, {1, 2}}},
		"of as many NUMA nodes those nearest to each other": {machine: "nps4x8", sizes: []int{4, 4}, want: [][]int{{0, 1, 2, 3}, {4, 5, 6, 7}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tables := testTables(t, tc.machine)
			sets, ok := tables.Split(FullMask(tables.Graph().Len()), tc.sizes)
			if !ok {
				t.Fatal("refused")
			}
			var got [][]int
			for _, s := range sets {
				got = append(got, s.Positions())
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("sets (-want +got):\n%s", diff)
			}
		})
	}
}

// TestLargeSplit: Split of many GPUs. It covers the exact limit and the greedy division above it.
func TestLargeSplit(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		machine machine
		sizes   []int
	}{
		"16 GPUs in fours":           {machine: machines()["dgx2"], sizes: []int{4, 4, 4, 4}},
		"16 GPUs in twos":            {machine: irregular(16, 2), sizes: slices.Repeat([]int{2}, 8)},
		"20 GPUs of four NUMA nodes": {machine: largeMachines()["four"], sizes: []int{2, 5, 5, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := tc.machine.graph(t)
			tables := NewTables(g, DefaultWeights())
			all := FullMask(g.Len())
			got, ok := tables.Split(all, tc.sizes)
			if !ok {
				t.Fatal("refused")
			}
			var seen Mask
			for i, s := range got {
				if s.Len() != tc.sizes[i] || s&seen != 0 || s&^all != 0 {
					t.Errorf("set %d is %v, want %d GPUs that no other set has", i, s.Positions(), tc.sizes[i])
				}
				seen |= s
			}
		})
	}
}
