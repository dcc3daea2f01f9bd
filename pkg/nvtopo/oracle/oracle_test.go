// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// build makes a graph of one model from the lower triangle of a class matrix,
// one line per GPU from the second on, and the NUMA node of each GPU.
func build(tb testing.TB, numa []int, triangle string) *nvtopo.Graph {
	tb.Helper()
	gpus := make([]nvtopo.GPU, len(numa))
	for i := range gpus {
		gpus[i] = nvtopo.GPU{Index: i, NUMANode: numa[i]}
	}
	links := map[[2]int]nvtopo.Link{}
	for i, row := range strings.Split(strings.TrimSpace(triangle), "\n") {
		for j, cell := range strings.Fields(row) {
			class, err := nvtopo.ParseClass(cell)
			if err != nil {
				tb.Fatal(err)
			}
			links[[2]int{i + 1, j}] = nvtopo.NewLink(class, nvtopo.PCIeUnknown, 4, 25_000_000, false)
		}
	}
	g, err := nvtopo.NewGraph(gpus, nil, nil, links)
	if err != nil {
		tb.Fatal(err)
	}
	return g
}

// twoPairs has a strong pair and a weak pair on each of two sockets' worth of
// GPUs:
//
//	0 ==NV4== 1     2 ==NV4== 3     all else SYS
func twoPairs(tb testing.TB) *nvtopo.Graph {
	tb.Helper()
	return build(tb, []int{0, 0, 1, 1}, `
NV4
SYS SYS
SYS SYS NV4`)
}

// random makes a graph with few distinct bandwidths, so that ties are common.
func random(tb testing.TB, r *rand.Rand, n int) *nvtopo.Graph {
	tb.Helper()
	classes := []string{"NV1", "NV2", "NV4", "PIX", "PXB", "PHB", "SYS"}
	numa := make([]int, n)
	for i := range numa {
		numa[i] = r.IntN(4) - 1
	}
	var rows strings.Builder
	for i := 1; i < n; i++ {
		for range i {
			rows.WriteString(classes[r.IntN(len(classes))] + " ")
		}
		rows.WriteByte('\n')
	}
	return build(tb, numa, rows.String())
}

// TestRingBruteForce: the ring is the best of all permutations.
func TestRingBruteForce(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		g := random(t, r, 6)
		o := New(g)
		for s := nvtopo.Mask(1); s < 1<<6; s++ {
			var want int64
			permute(s.Positions(), 0, func(order []int) {
				if len(order) > 1 {
					want = max(want, Bottleneck(g, order).Bandwidth)
				}
			})
			order, got := o.Ring(s)
			if got != want {
				t.Fatalf("set %b: ring %d kB/s, best permutation %d", s, got, want)
			}
			if nvtopo.MaskOf(order...) != s || len(order) != s.Len() {
				t.Fatalf("set %b: ring %v is not an order of it", s, order)
			}
			if len(order) > 1 && Bottleneck(g, order).Bandwidth != got {
				t.Fatalf("set %b: ring %v has bottleneck %d, not %d", s, order, Bottleneck(g, order).Bandwidth, got)
			}
		}
	}
}

func permute(list []int, from int, visit func([]int)) {
	if from == len(list) {
		visit(list)
		return
	}
	for i := from; i < len(list); i++ {
		list[from], list[i] = list[i], list[from]
		permute(list, from+1, visit)
		list[from], list[i] = list[i], list[from]
	}
}

func TestResidualByHand(t *testing.T) {
	// In GB/s: NV4 = 100; SYS on PCIe 4 = 12, PCIe rank 4.
	cases := map[string]struct {
		free nvtopo.Mask
		want *big.Rat
	}{
		"one GPU is worth nothing": {0b0001, new(big.Rat)},
		"an intact pair":           {0b0011, rat(2*100_000_000, 1)},
		// 12 GB/s, two NUMA nodes, 20 apart (not more), four ranks: 12 * 0.9 * 0.998, doubled.
		"a broken pair": {0b0101, rat(12_000_000*9*998*2, 10*1000)},
		// Pairs: the intact pair, 2 * 100. Triple: ring 12, two nodes, two SYS pairs
		// of rank 4 and a fabric of unknown level: 12 * 0.9 * 0.996 * 3 * 0.25.
		"a pair and one more": {0b0111, sum(rat(200_000_000, 1), rat(12_000_000*9*996*3, 10*1000*4))},
		// Two pairs: 2 * 200. One triple as above. Four: ring 12 (two NV4 and two SYS),
		// four SYS pairs of rank 4: 12 * 0.9 * 0.992 * 4.
		"both pairs": {0b1111, sum(rat(400_000_000, 1), rat(12_000_000*9*996*3, 10*1000*4), rat(12_000_000*9*992*4, 10*1000))},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Residual(twoPairs(t), tc.free); got.Cmp(tc.want) != 0 {
				t.Errorf("got %s, want %s", got.FloatString(3), tc.want.FloatString(3))
			}
		})
	}
}

func rat(a, b int64) *big.Rat { return big.NewRat(a, b) }

func sum(terms ...*big.Rat) *big.Rat {
	total := new(big.Rat)
	for _, t := range terms {
		total.Add(total, t)
	}
	return total
}

// TestUnknownNUMANodes: unknown NUMA nodes are nodes of their own.
func TestUnknownNUMANodes(t *testing.T) {
	g := build(t, []int{-1, -1}, "PIX")
	o := New(g)
	if got := o.span(0b11); got != (numaSpan{nodes: 2, distance: 255}) {
		t.Errorf("got %+v", got)
	}
	// 24 GB/s * 0.9 * 0.95 * 2 GPUs: two nodes, more than 20 apart.
	if got, want := o.Residual(0b11), rat(24_000_000*9*95*2, 10*100); got.Cmp(want) != 0 {
		t.Errorf("residual: got %s, want %s", got.FloatString(3), want.FloatString(3))
	}
}

func TestBest(t *testing.T) {
	nv := nvtopo.Class{Kind: nvtopo.KindNVLink, Lanes: 1}
	cases := map[string]struct {
		free, allowed nvtopo.Mask
		k             int
		constraint    nvtopo.Constraint
		want          nvtopo.Mask
		wantNone      bool
	}{
		"a single GPU comes from the broken pair":        {free: 0b1110, allowed: 0b1111, k: 1, want: 0b0010},
		"the lowest index decides between equals":        {free: 0b1111, allowed: 0b1111, k: 1, want: 0b0001},
		"a pair is an intact pair":                       {free: 0b1101, allowed: 0b1111, k: 2, want: 0b1100},
		"what is not allowed still counts as free":       {free: 0b1110, allowed: 0b1100, k: 1, want: 0b0100},
		"a floor on the link refuses a broken pair":      {free: 0b0101, allowed: 0b1111, k: 2, constraint: nvtopo.Constraint{MinLink: nv}, wantNone: true},
		"the link's floor does not concern one GPU":      {free: 0b0001, allowed: 0b1111, k: 1, constraint: nvtopo.Constraint{MinLink: nv, MinBandwidth: 1 << 40}, want: 0b0001},
		"a floor on the bandwidth is met exactly":        {free: 0b0011, allowed: 0b1111, k: 2, constraint: nvtopo.Constraint{MinBandwidth: 100_000_000}, want: 0b0011},
		"a floor on the bandwidth is missed by 1 kB/s":   {free: 0b0011, allowed: 0b1111, k: 2, constraint: nvtopo.Constraint{MinBandwidth: 100_000_001}, wantNone: true},
		"one NUMA node has no three":                     {free: 0b1111, allowed: 0b1111, k: 3, constraint: nvtopo.Constraint{Policy: nvtopo.PolicySingleNUMANode}, wantNone: true},
		"three need two nodes, which restricted accepts": {free: 0b1111, allowed: 0b1111, k: 3, constraint: nvtopo.Constraint{Policy: nvtopo.PolicyRestricted}, want: 0b0111},
		"two need one node, and restricted insists":      {free: 0b0101, allowed: 0b1111, k: 2, constraint: nvtopo.Constraint{Policy: nvtopo.PolicyRestricted}, wantNone: true},
		"too few are free":                               {free: 0b0001, allowed: 0b1111, k: 2, wantNone: true},
		"none are asked for":                             {free: 0b1111, allowed: 0b1111, k: 0, wantNone: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, ok := Best(twoPairs(t), tc.free, tc.allowed, tc.k, tc.constraint)
			if ok == tc.wantNone || got != tc.want {
				t.Errorf("got %04b, found %v; want %04b, found %v", got, ok, tc.want, !tc.wantNone)
			}
		})
	}
}

// TestMixedModels: models are mixed only when that is allowed.
func TestMixedModels(t *testing.T) {
	g := twoPairs(t)
	g.GPUs[1].Model = "other"
	// The mixed pair has the link; the pair of one model is broken only by NUMA.
	if got, ok := Best(g, 0b0111, 0b1111, 2, nvtopo.Constraint{}); got != 0b0101 || !ok {
		t.Errorf("one model: got %04b, %v", got, ok)
	}
	if got, ok := Best(g, 0b0111, 0b1111, 2, nvtopo.Constraint{AllowMixedModels: true}); got != 0b0011 || !ok {
		t.Errorf("mixed: got %04b, %v", got, ok)
	}
}

// TestCompareOrder: Compare is a strict order.
func TestCompareOrder(t *testing.T) {
	g := random(t, rand.New(rand.NewPCG(3, 4)), 6)
	o := New(g)
	var sets []nvtopo.Mask
	eachSubset(nvtopo.FullMask(6), 3, func(s nvtopo.Mask) { sets = append(sets, s) })
	for _, a := range sets {
		for _, b := range sets {
			ab, ba := o.Compare(0b111111, a, b), o.Compare(0b111111, b, a)
			if ab != -ba || (ab == 0) != (a == b) {
				t.Fatalf("%b against %b: %d, and backwards %d", a, b, ab, ba)
			}
			for _, c := range sets {
				if ab < 0 && o.Compare(0b111111, b, c) < 0 && o.Compare(0b111111, a, c) >= 0 {
					t.Fatalf("%b < %b < %b, but not %b < %b", a, b, c, a, c)
				}
			}
		}
	}
}

// TestSubsetEnumeration: every subset is yielded once.
func TestSubsetEnumeration(t *testing.T) {
	want := map[nvtopo.Mask]int{}
	for m := range nvtopo.Mask(1 << 7) {
		if m&^0b1011011 == 0 && m.Len() == 3 {
			want[m] = 1
		}
	}
	got := map[nvtopo.Mask]int{}
	eachSubset(0b1011011, 3, func(s nvtopo.Mask) { got[s]++ })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("subsets (-want,+got):\n%s", diff)
	}
}

// BenchmarkAllMasks is the cost of a property test over every free mask and
// every k of one machine of eight.
func BenchmarkAllMasks(b *testing.B) {
	g := random(b, rand.New(rand.NewPCG(5, 6)), 8)
	for b.Loop() {
		o := New(g)
		for free := range nvtopo.Mask(1 << 8) {
			for k := 1; k <= free.Len(); k++ {
				o.Best(free, free, k, nvtopo.Constraint{})
			}
		}
	}
}
