// SPDX-License-Identifier: Apache-2.0

package nvtopo

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// constraints are those the property is checked for; the first is the default.
func constraints() []Constraint {
	nv1 := Class{Kind: KindNVLink, Lanes: 1}
	node := Class{Kind: KindPCIe, PCIe: PCIeNODE}
	return []Constraint{
		{},
		{Policy: PolicyNone, AllowMixedModels: true},
		{Policy: PolicyRestricted},
		{Policy: PolicySingleNUMANode},
		{MinLink: nv1},
		{MinLink: node, AllowMixedModels: true, Policy: PolicyRestricted},
		{MinLink: Class{Kind: KindNVLink, Lanes: 64}},
		{MinBandwidth: 12_000_001},
		{MinBandwidth: 25_000_000, Policy: PolicySingleNUMANode, MinLink: node},
	}
}

// TestPickBruteForce: Pick equals brute force. It covers every free set and every k of every
// machine of up to 8 GPUs with everything allowed.
func TestPickBruteForce(t *testing.T) {
	t.Parallel()
	for _, name := range slices.Sorted(maps.Keys(machines())) {
		g := machines()[name].graph(t)
		if g.Len() > eagerGPUs {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tables, b := NewTables(g, DefaultWeights()), newBrute(g, DefaultWeights())
			for _, c := range constraints() {
				for free := range FullMask(g.Len()) + 1 {
					for k := 1; k <= g.Len(); k++ {
						checkPick(t, tables, b, free, FullMask(64), k, c)
					}
				}
			}
		})
	}
}

// TestRestrictedPickBruteForce: Pick equals brute force when restricted. It covers sets of which
// only a part is allowed: the residual still counts all that is free.
func TestRestrictedPickBruteForce(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"dgx1v", "irregular", "unknown6", "models6", "nps4x8"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := machines()[name].graph(t)
			tables, b := NewTables(g, DefaultWeights()), newBrute(g, DefaultWeights())
			rng := rand.New(rand.NewPCG(1, 2))
			for range 2000 {
				c := constraints()[rng.IntN(len(constraints()))]
				all := FullMask(g.Len())
				checkPick(t, tables, b, Mask(rng.Uint64())&all, Mask(rng.Uint64()), 1+rng.IntN(g.Len()), c)
			}
		})
	}
}

// TestPickPrepared: Pick gives the same before and after Prepare. It compares the walk over subsets
// with the tables, and both with brute force where that is affordable.
func TestPickPrepared(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]machine{"ten without symmetry": irregular(10, 3), "nine without symmetry": irregular(9, 11)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := m.graph(t)
			cold, warm, b := NewTables(g, DefaultWeights()), NewTables(g, DefaultWeights()), newBrute(g, DefaultWeights())
			if err := warm.Prepare(t.Context()); err != nil {
				t.Fatalf("Prepare: %v", err)
			}
			rng := rand.New(rand.NewPCG(5, uint64(g.Len())))
			for free := range FullMask(g.Len()) + 1 {
				for k := 1; k <= g.Len(); k++ {
					c := constraints()[rng.IntN(len(constraints()))]
					s, okS := cold.Pick(free, free, k, c)
					w, okW := warm.Pick(free, free, k, c)
					if s != w || okS != okW {
						t.Fatalf("free %v, k %d, %+v: %v, %t before Prepare and %v, %t after", free.Positions(), k, c, s.Positions(), okS, w.Positions(), okW)
					}
				}
			}
			for range 60 {
				free := Mask(rng.Uint64()) & FullMask(g.Len())
				checkPick(t, warm, b, free, free, 1+rng.IntN(6), constraints()[rng.IntN(len(constraints()))])
			}
		})
	}
}

func checkPick(t *testing.T, tables *Tables, b *brute, free, allowed Mask, k int, c Constraint) {
	t.Helper()
	want, wantShort := b.pick(free, allowed, k, c)
	got, ok := tables.Pick(free, allowed, k, c)
	if got != want || ok != (wantShort == ShortNone) {
		t.Fatalf("free %v, allowed %v, k %d, %+v: picked %v (%t), brute force %v (short of %s)",
			free.Positions(), allowed.Positions(), k, c, got.Positions(), ok, want.Positions(), wantShort)
	}
	if short := tables.Shortfall(free, allowed, k, c); short != wantShort {
		t.Fatalf("free %v, allowed %v, k %d, %+v: short of %s, brute force %s", free.Positions(), allowed.Positions(), k, c, short, wantShort)
	}
}

// TestSetValueBruteForce: the values that Choose returns for every set equal a brute force.
func TestSetValueBruteForce(t *testing.T) {
	t.Parallel()
	for _, name := range slices.Sorted(maps.Keys(machines())) {
		g := machines()[name].graph(t)
		if g.Len() > eagerGPUs {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tables, b := NewTables(g, DefaultWeights()), newBrute(g, DefaultWeights())
			all := FullMask(g.Len())
			best := make([]int64, g.Len()+1)
			for s := Mask(1); s <= all; s++ {
				key := b.key(s)
				k := s.Len()
				best[k] = max(best[k], key.ring)
				if diff := cmp.Diff(b.ringOrder(s), tables.RingOrder(s)); diff != "" {
					t.Fatalf("RingOrder(%v) (-brute force +got):\n%s", s.Positions(), diff)
				}
				if got := tables.Ring(s); got != key.ring {
					t.Fatalf("Ring(%v) = %d, brute force %d", s.Positions(), got, key.ring)
				}
				if got, want := tables.Residual(s), b.residual(s).Int64(); got != want {
					t.Fatalf("Residual(%v) = %d, brute force %d", s.Positions(), got, want)
				}
				if got := tables.NUMACount(s); got != key.nodes {
					t.Fatalf("NUMACount(%v) = %d, brute force %d", s.Positions(), got, key.nodes)
				}
				checkChoice(t, tables, b, s)
			}
			for k, want := range best {
				if got := tables.Best(k); got != want {
					t.Errorf("Best(%d) = %d, brute force %d", k, got, want)
				}
				if k > 0 && tables.MinNUMA(k) != b.emptyNodes(k) {
					t.Errorf("MinNUMA(%d) = %d, brute force %d", k, tables.MinNUMA(k), b.emptyNodes(k))
				}
			}
		})
	}
}

// checkChoice picks exactly the set s of a machine on which all GPUs are free.
func checkChoice(t *testing.T, tables *Tables, b *brute, s Mask) {
	t.Helper()
	g := tables.Graph()
	got, short := tables.Choose(FullMask(g.Len()), s, s.Len(), Constraint{AllowMixedModels: true})
	if short != ShortNone {
		t.Fatalf("Choose among %v: short of %s", s.Positions(), short)
	}
	key := b.key(s)
	order := b.ringOrder(s)
	want := Choice{
		Set: s, Ring: order, Bandwidth: key.ring, NUMANodes: g.NUMAOf(s), PairSum: key.pair, PCIeSum: key.pcie,
		Residual: b.residual(FullMask(g.Len()) &^ s).Int64(),
	}
	for x, i := range order {
		for y, j := range order {
			l := g.Link(i, j)
			if i == j || l.Bandwidth != key.ring {
				continue
			}
			want.Latency = max(want.Latency, l.Latency)
			adjacent := y == (x+1)%len(order)
			if adjacent && (want.Class == Class{} || !l.Class.AtLeast(want.Class)) {
				want.Class = l.Class
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("Choose among %v (-brute force +got):\n%s", s.Positions(), diff)
	}
	if class := tables.RingClass(s); class != want.Class {
		t.Fatalf("RingClass(%v) = %s, brute force %s", s.Positions(), class, want.Class)
	}
	if latency := tables.Latency(s); latency != want.Latency {
		t.Fatalf("Latency(%v) = %d, brute force %d", s.Positions(), latency, want.Latency)
	}
}

// TestPickAllocations: Pick does not allocate memory.
func TestPickAllocations(t *testing.T) {
	warm16 := testTables(t, "dgx2")
	if err := warm16.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	strict := Constraint{Policy: PolicySingleNUMANode, MinLink: Class{Kind: KindNVLink, Lanes: 1}, MinBandwidth: 1}
	for name, tc := range map[string]struct {
		t       *Tables
		k       int
		allowed Mask
		c       Constraint
	}{
		"a table of 8 GPUs":                 {t: testTables(t, "dgx1v"), k: 4, allowed: ^Mask(0)},
		"a strict table of 8 GPUs":          {t: testTables(t, "hgx8"), k: 4, allowed: ^Mask(0), c: strict},
		"8 GPUs of which some are allowed":  {t: testTables(t, "hgx8"), k: 3, allowed: 0x7e},
		"a table of 16 GPUs":                {t: warm16, k: 8, allowed: ^Mask(0)},
		"16 GPUs before Prepare":            {t: testTables(t, "dgx2"), k: 8, allowed: ^Mask(0)},
		"16 GPUs of which half are allowed": {t: warm16, k: 4, allowed: 0xff00, c: strict},
	} {
		t.Run(name, func(t *testing.T) {
			all := tc.t.Graph().Healthy()
			free := all &^ 1
			got := testing.AllocsPerRun(20, func() {
				s, ok := tc.t.Pick(free, tc.allowed, tc.k, tc.c)
				if !ok {
					t.Fatal("nothing picked")
				}
				if tc.t.Ring(s)+tc.t.Latency(s)+tc.t.Residual(free&^s)+tc.t.Best(tc.k)+int64(tc.t.NUMACount(s)) < 0 {
					t.Fatal("negative")
				}
			})
			if got != 0 {
				t.Errorf("%v allocations per Pick, want 0", got)
			}
		})
	}
}

// TestPickWhereBruteForce: PickWhere equals a brute force. It adds a demand that is no property of
// the graph.
func TestPickWhereBruteForce(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"dgx1v", "irregular", "models6"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := machines()[name].graph(t)
			tables, b := NewTables(g, DefaultWeights()), newBrute(g, DefaultWeights())
			rng := rand.New(rand.NewPCG(10, 11))
			for range 500 {
				all := FullMask(g.Len())
				free, salt, k := Mask(rng.Uint64())&all, Mask(rng.Uint64()), 1+rng.IntN(g.Len())
				keep := func(s Mask) bool { return (s*0x9e37+salt)%3 == 0 }
				var want Mask
				for _, s := range bruteSubsets(free, k) {
					if keep(s) && b.shortfall(s, Constraint{}, 0) == ShortNone && (want == 0 || b.better(s, want, free)) {
						want = s
					}
				}
				if got, ok := tables.PickWhere(free, all, k, Constraint{}, keep); got != want || ok != (want != 0) {
					t.Fatalf("free %v, k %d: picked %v (%t), brute force %v", free.Positions(), k, got.Positions(), ok, want.Positions())
				}
			}
		})
	}
}

func TestOddQuestions(t *testing.T) {
	t.Parallel()
	empty, err := NewGraph(nil, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, tables := range map[string]*Tables{
		"no GPU": NewTables(empty, DefaultWeights()), "8 GPUs": testTables(t, "hgx8"),
		"20 GPUs": NewTables(largeMachines()["four"].graph(t), DefaultWeights()),
	} {
		n := tables.Graph().Len()
		for k, want := range map[int]Shortfall{0: ShortNone, -1: ShortFree, n + 1: ShortFree, 1 << 62: ShortFree, -1 << 62: ShortFree} {
			s, ok := tables.Pick(^Mask(0), ^Mask(0), k, Constraint{})
			if s != 0 || ok != (want == ShortNone) {
				t.Errorf("%s, k %d: picked %v (%t)", name, k, s.Positions(), ok)
			}
			if ch, short := tables.Choose(^Mask(0), ^Mask(0), k, Constraint{}); short != want || ch.Set != 0 || ch.Bandwidth != 0 {
				t.Errorf("%s, k %d: chose %v, short of %s, want %s", name, k, ch.Set.Positions(), short, want)
			}
		}
		if got := tables.Best(0) + tables.Best(1) + tables.Best(n+1) + tables.Best(-1) + tables.Ring(0) + tables.Latency(1) + tables.Residual(0); got != 0 {
			t.Errorf("%s: sets without a ring are worth %d", name, got)
		}
		if _, ok := tables.Pick(^Mask(0), ^Mask(0), min(n, 1), Constraint{Policy: 200}); !ok {
			t.Errorf("%s: an unknown policy refuses one GPU", name)
		}
		if n > 0 && tables.MinNUMA(n+1) <= n {
			t.Errorf("%s: %d NUMA nodes suffice for a GPU too many", name, tables.MinNUMA(n+1))
		}
	}
}

// TestRingOrder: of the rings with the fastest weakest link the one with the greatest sum is shown.
func TestRingOrder(t *testing.T) {
	t.Parallel()
	apart := machine{numa: make([]int, 20), level: func(int, int) PCIeLevel { return PCIePHB }, lanes: map[[2]int]int{}}
	alternating := make([]int, 0, 20)
	for i := range 10 {
		apart.lanes[[2]int{i, i + 10}] = 4
		alternating = append(alternating, i, i+10)
	}
	tests := map[string]struct {
		machine machine
		set     []int
		wantSum int64 // GB/s
		want    []int // nil: any of that sum
	}{
		"two bridged pairs that cross":  {machine: machines()["split8"], set: []int{0, 1, 2, 3}, wantSum: 2*300 + 2*12, want: []int{0, 1, 3, 2}},
		"four bridged pairs":            {machine: machines()["split8"], set: []int{0, 1, 2, 3, 4, 5, 6, 7}, wantSum: 4*300 + 4*12, want: []int{0, 1, 3, 4, 5, 6, 7, 2}},
		"equal links in their order":    {machine: machines()["hgx8"], set: []int{1, 2, 4, 7}, wantSum: 4 * 300, want: []int{1, 2, 4, 7}},
		"more than 16 in bridged pairs": {machine: apart, set: alternating, wantSum: 10*100 + 216},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := tc.machine.graph(t)
			tables := NewTables(g, DefaultWeights())
			got := tables.RingOrder(MaskOf(tc.set...))
			if sum := linkSum(g, got) / kBpsPerGBps; sum != tc.wantSum || MaskOf(got...) != MaskOf(tc.set...) || got[0] != 0 && tc.want == nil {
				t.Errorf("ring %v with links of %d GB/s, want %d GB/s over %v", got, sum, tc.wantSum, tc.set)
			}
			if least := bottleneck(g, got); least != tables.Ring(MaskOf(tc.set...)) {
				t.Errorf("ring %v has a link of %d kB/s, the best ring %d", got, least, tables.Ring(MaskOf(tc.set...)))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" && tc.want != nil {
				t.Errorf("ring (-want +got):\n%s", diff)
			}
		})
	}
}
