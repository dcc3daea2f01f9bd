// SPDX-License-Identifier: Apache-2.0

package nvtopo

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
)

// Graphs of more than 16 GPUs.
func largeMachines() map[string]machine {
	numa := []int{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}
	four := make([]int, 20)
	for i := range four {
		four[i] = i / 5
	}
	switches := func(i, j int) PCIeLevel { // two switches of five per socket
		switch {
		case i/5 == j/5:
			return PCIePIX
		case numa[i] == numa[j]:
			return PCIeNODE
		}
		return PCIeSYS
	}
	lanes := map[[2]int]int{}
	for i := 0; i < 20; i += 2 {
		lanes[[2]int{i, i + 1}] = 4
	}
	models := make([]string, 20)
	for i := range models {
		models[i] = []string{"A", "B"}[i%2]
	}
	phb := func(int, int) PCIeLevel { return PCIePHB }
	own := make([]int, 18) // a NUMA node per GPU, near within halves
	blocks := make([][]int, 18)
	for i := range own {
		own[i] = i
		blocks[i] = slices.Repeat([]int{32}, 18)
		for j := range blocks[i] {
			if i%2 == j%2 {
				blocks[i][j] = 12
			}
		}
	}
	alike := slices.Repeat([][]int{{10, 10, 10, 10}}, 4) // a SLIT without information
	irregular18 := irregular(18, 5)
	irregular18.distances = [][]int{{10, 15, 21}, {15, 10, 30}, {12, 28, 10}}
	return map[string]machine{
		"switched":  {numa: numa, level: paired(numa, PCIeNODE), switched: same(20, 12)},
		"switches":  {numa: numa, level: switches},
		"bridged":   {numa: numa, level: rooted(numa, PCIeNODE), lanes: lanes},
		"four":      {numa: four, level: rooted(four, PCIePHB), distances: nps4Distances},
		"flat":      {numa: four, level: phb, distances: nps4Distances},
		"alike":     {numa: four, level: phb, distances: alike},
		"own":       {numa: own, level: phb, distances: blocks},
		"models":    {numa: numa, level: switches, models: models},
		"irregular": irregular18,
	}
}

// bruteLarge is the definition of the choice above 16 GPUs: as brute, with the
// residual's published bound.
type bruteLarge struct {
	*brute
	t *Tables
}

// compare is negative when s is better than t.
func (b bruteLarge) compare(s, t, free Mask) int {
	x, y := b.key(s), b.key(t)
	if c := cmp.Or(cmp.Compare(y.ring, x.ring), cmp.Compare(x.nodes, y.nodes), cmp.Compare(x.dist, y.dist)); c != 0 {
		return c
	}
	return cmp.Or(cmp.Compare(b.t.Residual(free&^t), b.t.Residual(free&^s)),
		cmp.Compare(x.pcie, y.pcie), cmp.Compare(y.pair, x.pair), slices.Compare(x.members, y.members))
}

func (b bruteLarge) pick(free, allowed Mask, k int, c Constraint) Mask {
	var best Mask
	for _, s := range bruteSubsets(free&allowed, k) {
		if b.shortfall(s, c, b.t.MinNUMA(k)) == ShortNone && (best == 0 || b.compare(s, best, free) < 0) {
			best = s
		}
	}
	return best
}

// TestLargePickBruteForce: a large pick equals brute force.
func TestLargePickBruteForce(t *testing.T) {
	t.Parallel()
	for name, m := range largeMachines() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := m.graph(t)
			tables := NewTables(g, DefaultWeights())
			b := bruteLarge{newBrute(g, DefaultWeights()), tables}
			rng := rand.New(rand.NewPCG(3, 4))
			all := FullMask(g.Len())
			for i := range 24 {
				free := all
				if i > 2 {
					free &= Mask(rng.Uint64() | rng.Uint64())
				}
				allowed := all
				if i%5 == 4 {
					allowed &= Mask(rng.Uint64() | rng.Uint64())
				}
				k := 1 + i%4
				c := constraints()[i%len(constraints())]
				got, ok := tables.Pick(free, allowed, k, c)
				want := b.pick(free, allowed, k, c)
				if got != want || ok != (want != 0) {
					t.Errorf("free %v, allowed %v, k %d, %+v: picked %v (%t), brute force %v",
						free.Positions(), allowed.Positions(), k, c, got.Positions(), ok, want.Positions())
				}
			}
		})
	}
}

// TestLargeResidualBound: the residual of a large machine is below the exact one. It checks the
// bound where the exact value is affordable: few GPUs free.
func TestLargeResidualBound(t *testing.T) {
	t.Parallel()
	for name, m := range largeMachines() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := m.graph(t)
			tables, b := NewTables(g, DefaultWeights()), newBrute(g, DefaultWeights())
			rng := rand.New(rand.NewPCG(6, 7))
			var bound, exact float64
			for range 30 {
				free := FullMask(20) & FullMask(g.Len()) & Mask(rng.Uint64()&rng.Uint64())
				if free.Len() > 8 {
					continue
				}
				x, y := tables.Residual(free), b.residual(free).Int64()
				if x > y {
					t.Errorf("Residual(%v) = %d, more than the exact %d", free.Positions(), x, y)
				}
				bound, exact = bound+float64(x), exact+float64(y)
			}
			if bound < 0.8*exact {
				t.Errorf("the bound reaches %.0f %% of the exact values, want 80 %%", 100*bound/exact)
			}
		})
	}
}

// effort returns the sum of sets visited by searches from now on.
func effort(tables *Tables) *int {
	spent := new(int)
	tables.c.searched = func(n int) { *spent += n }
	return spent
}

// TestLargePickTime: a large pick is quick. It guards against an exponential search on the graphs
// that exist: GPUs interchangeable in blocks.
func TestLargePickTime(t *testing.T) {
	for _, name := range []string{"switched", "switches", "bridged", "four"} {
		t.Run(name, func(t *testing.T) {
			tables := NewTables(largeMachines()[name].graph(t), DefaultWeights())
			all := FullMask(20)
			for k := 1; k <= 20; k++ {
				spent := effort(tables)
				ch, short := tables.Choose(all&^5, all, min(k, 18), Constraint{})
				if short != ShortNone {
					t.Fatalf("k %d: short of %s", k, short)
				}
				t.Logf("k %d: %v over %s, %d sets", k, ch.Ring, ch.Class, *spent)
				if *spent > searchBudget/2 { // a microsecond each
					t.Errorf("k %d visits %d sets, want %d at most", k, *spent, searchBudget/2)
				}
			}
		})
	}
}

// TestSixtyFourGPUs is the widest graph: it must answer, and with a ring.
func TestSixtyFourGPUs(t *testing.T) {
	t.Parallel()
	numa := twoSockets(64)
	g := machine{numa: numa, level: rooted(numa, PCIeNODE), switched: same(64, 18)}.graph(t)
	tables := NewTables(g, DefaultWeights())
	for _, k := range []int{1, 2, 8, 17, 32, 33, 64} {
		ch, short := tables.Choose(^Mask(0), ^Mask(0), k, Constraint{})
		if short != ShortNone || len(ch.Ring) != k {
			t.Fatalf("k %d: ring %v, short of %s", k, ch.Ring, short)
		}
		if k > 1 && (ch.Bandwidth != 18*25_000_000 || ch.Class.String() != "NV18") {
			t.Errorf("k %d: %d kB/s over %s, want NV18", k, ch.Bandwidth, ch.Class)
		}
		if want := (k + 31) / 32; tables.NUMACount(ch.Set) != want {
			t.Errorf("k %d: on %d NUMA nodes, want %d", k, tables.NUMACount(ch.Set), want)
		}
		if got := tables.Best(k); got != ch.Bandwidth {
			t.Errorf("Best(%d) = %d, want %d", k, got, ch.Bandwidth)
		}
	}
}

// TestLargePickDemand: a large pick checks its extra demand for each set.
func TestLargePickDemand(t *testing.T) {
	t.Parallel()
	g := largeMachines()["switches"].graph(t)
	tables := NewTables(g, DefaultWeights())
	all := FullMask(20)
	onSecond := func(s Mask) bool { return s&FullMask(10) == 0 }
	got, ok := tables.PickWhere(all, all, 3, Constraint{}, onSecond)
	want, _ := tables.Pick(all, all&^FullMask(10), 3, Constraint{})
	if !ok || got != want {
		t.Errorf("picked %v (%t), want %v", got.Positions(), ok, want.Positions())
	}
	if got, ok := tables.PickWhere(all, all, 3, Constraint{}, func(Mask) bool { return false }); ok {
		t.Errorf("picked %v that keep refuses", got.Positions())
	}
}

// TestMemoConsistency: cached picks equal computed ones. It repeats the same picks in another order, with
// tables that have them cached and with new ones.
func TestMemoConsistency(t *testing.T) {
	g := largeMachines()["switches"].graph(t)
	old := NewTables(g, DefaultWeights())
	r := rand.New(rand.NewPCG(3, 3))
	type ask struct {
		free Mask
		k    int
	}
	var asks []ask
	for range 60 {
		asks = append(asks, ask{Mask(r.Uint64()) & FullMask(g.Len()), 1 + r.IntN(8)})
	}
	for range 2 {
		r.Shuffle(len(asks), func(i, j int) { asks[i], asks[j] = asks[j], asks[i] })
		for _, a := range asks {
			got, ok := old.Pick(a.free, a.free, a.k, Constraint{})
			want := old.c.branchAndBound(a.free, a.free, a.k, old.c.filter(0), nil)
			if a.k > a.free.Len() {
				want = 0
			}
			if got != want || ok != (want != 0) {
				t.Fatalf("%d of %b: remembered %b, searched %b", a.k, a.free, got, want)
			}
			if step, again := old.c.ringStep(a.free), old.c.searchStep(a.free); a.free.Len() > 1 && step != again {
				t.Fatalf("ring step of %b: remembered %d, searched %d", a.free, step, again)
			}
			if left := a.free &^ got; old.Residual(left) != old.c.residualBound(left) {
				t.Fatalf("residual of %b: remembered %d, computed %d", left, old.Residual(left), old.c.residualBound(left))
			}
		}
	}
}

// TestMemoBounds: a memo stays bounded.
func TestMemoBounds(t *testing.T) {
	var m memo[int, int]
	for i := range 3 * maxRemembered {
		m.put(i, i)
	}
	if n := m.len(); n > maxRemembered {
		t.Errorf("%d answers are remembered, want at most %d", n, maxRemembered)
	}
	if v, ok := m.get(3*maxRemembered - 1); !ok || v != 3*maxRemembered-1 {
		t.Errorf("the last answer is %d (%t)", v, ok)
	}
}

// TestNoiseBudget: noise is searched within a budget. A node may publish 64 GPUs of which no two
// links are alike. Half a second for one answer stopped the whole scheduler.
func TestNoiseBudget(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	gpus, links := make([]GPU, MaxGPUs), map[[2]int]Link{}
	for i := range gpus {
		gpus[i].NUMANode = UnknownNUMA
		for j := range i {
			l := NewLink(Class{Kind: KindNVLink, Lanes: 1 + r.IntN(18)}, PCIeLevel(1+r.IntN(5)), 0, 0, false)
			l.Bandwidth, l.Latency = 1+r.Int64N(1_000_000_000), 1+r.Int64N(1000)
			links[[2]int{j, i}] = l
		}
	}
	g, err := NewGraph(gpus, nil, nil, links)
	if err != nil {
		t.Fatal(err)
	}
	tb := NewTables(g, DefaultWeights())
	all := FullMask(MaxGPUs)
	for _, k := range []int{2, 8, 16, 31, 63} {
		searches, spent, most := 0, 0, 0
		tb.c.searched = func(n int) { searches, spent, most = searches+1, spent+n, max(most, n) }
		s, ok := tb.Pick(all, all, k, Constraint{})
		if !ok || s.Len() != k {
			t.Errorf("%d of 64: %v (%t)", k, s.Positions(), ok)
		}
		t.Logf("%d of 64: %d sets in %d searches, at most %d in one", k, spent, searches, most)
		if searches == 0 || spent > 2*searchBudget {
			t.Errorf("%d of 64: %d searches visit %d sets, want %d at most", k, searches, spent, 2*searchBudget)
		}
	}
}
