// SPDX-License-Identifier: Apache-2.0

package nvtopo

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// bruteSplit tries every division.
func bruteSplit(b *brute, set Mask, sizes []int) []Mask {
	var best, now []Mask
	var bestWorst, bestSum int64
	score := func(division []Mask) (worst, sum int64) {
		worst = -1
		for _, s := range division {
			if s.Len() < 2 {
				continue
			}
			if r := b.ring(s); worst < 0 || r < worst {
				worst = r
			}
			sum += b.ring(s)
		}
		return worst, sum
	}
	var extend func(left Mask, i int)
	extend = func(left Mask, i int) {
		if i < len(sizes) {
			for _, s := range bruteSubsets(left, sizes[i]) {
				now = append(now, s)
				extend(left&^s, i+1)
				now = now[:len(now)-1]
			}
			return
		}
		worst, sum := score(now)
		// Divisions come in lexicographic order: the first of equals stays.
		if best == nil || worst > bestWorst || worst == bestWorst && sum > bestSum {
			best, bestWorst, bestSum = slices.Clone(now), worst, sum
		}
	}
	extend(set, 0)
	return best
}

// TestSplitBruteForce: Split equals brute force.
func TestSplitBruteForce(t *testing.T) {
	t.Parallel()
	sizes := [][]int{{2, 2}, {1, 3}, {3, 1}, {4}, {2, 2, 2}, {1, 1, 2}, {2, 3, 3}, {0, 2, 0, 3}, {2, 4}, {1, 1}, {4, 4}, {}, {0}, {2, 2, 2, 2}}
	for _, name := range []string{"dgx1v", "pair8", "nps4x8", "irregular", "unknown6", "hgx8-down3", "mix5"} {
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
		"quads of the DGX-1V are the two sockets":      {machine: "dgx1v", free: 0xff, g: 4, want: [][]int{{0, 1, 2, 3}, {4, 5, 6, 7}}},
		"pairs of the DGX-1V are double links":         {machine: "dgx1v", free: 0xff, g: 2, want: [][]int{{0, 3}, {1, 2}, {4, 7}, {5, 6}}},
		"bridged pairs":                                {machine: "pair8", free: 0xff, g: 2, want: [][]int{{0, 1}, {2, 3}, {4, 5}, {6, 7}}},
		"one GPU is left over":                         {machine: "pair8", free: 0xfd, g: 2, want: [][]int{{2, 3}, {4, 5}, {6, 7}}},
		"pairs on 16 GPUs of one switch in NUMA order": {machine: "dgx2", free: 0xf, g: 2, want: [][]int{{0, 1}, {2, 3}}},
		"more than there are":                          {machine: "pair8", free: 1, g: 2},
		"groups of nothing":                            {machine: "pair8", free: 0xff, g: 0},
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
