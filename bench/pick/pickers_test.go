// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/baseline"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/oracle"
)

func testBed(tb testing.TB, name string) bed {
	tb.Helper()
	b, err := bedOf(name)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// TestEnumerationOracle: the enumeration equals the oracle. The rings by dynamic programming are
// those found by trying all orders.
func TestEnumerationOracle(t *testing.T) {
	all, err := beds()
	if err != nil {
		t.Fatal(err)
	}
	all = append(all, testBed(t, large.name))
	for _, b := range all {
		t.Run(b.name, func(t *testing.T) {
			e, o := newEnumerator(b.graph), oracle.New(b.graph)
			most := map[int]int{8: 8, 16: 5, 20: 4}[b.graph.Len()]
			for k := 1; k <= most; k++ {
				var best int64
				e.subsets(b.graph.Healthy(), k, 0, func(s nvtopo.Mask) {
					_, want := o.Ring(s)
					best = max(best, want)
					if got := e.ring(s); got != want {
						t.Errorf("ring of %v is %d, want %d", s.Positions(), got, want)
					}
				})
				if set, got, ok := e.best(b.graph.Healthy(), k); !ok || got != best || set.Len() != k {
					t.Errorf("best of %d: %v with %d, want %d", k, set.Positions(), got, best)
				}
			}
		})
	}
}

// TestEnumerationLimit: the enumeration refuses a k above the number of free GPUs.
func TestEnumerationLimit(t *testing.T) {
	if set, _, ok := newEnumerator(testBed(t, "dgx-h100").graph).best(0x3, 3); ok {
		t.Errorf("picked %v of two free GPUs", set.Positions())
	}
}

// TestAllocatorDivisions: divisions are those that the allocator visits.
func TestAllocatorDivisions(t *testing.T) {
	for _, tc := range []struct {
		n, k int
		want float64
	}{{8, 2, 105}, {8, 3, 280}, {8, 4, 35}, {8, 5, 56}, {5, 1, 5}, {16, 2, 2_027_025}, {16, 3, 22_422_400}, {16, 8, 6435}, {16, 12, 1820}} {
		if got := divisions(tc.n, tc.k); got != tc.want {
			t.Errorf("%d GPUs into sets of %d: %v divisions, want %v", tc.n, tc.k, got, tc.want)
		}
	}
}

// TestStepsWithPadding: steps count the companions of the padding.
func TestStepsWithPadding(t *testing.T) {
	for _, tc := range []struct {
		n, k int
		want float64
	}{{8, 2, 105}, {8, 7, 1716}, {16, 8, 6435}, {16, 12, 1_352_078}, {16, 15, 77_558_760}, {4, 1, 4}} {
		if got := allocatorSteps(tc.n, tc.k); got != tc.want {
			t.Errorf("%d of %d GPUs: %v steps, want %v", tc.k, tc.n, got, tc.want)
		}
	}
}

// TestAllocatorLinks: the allocator sees the links of the graph. The values assigned are those the
// library's own names belong to.
func TestAllocatorLinks(t *testing.T) {
	for name, tc := range map[string]struct {
		machine string
		a, b    int
		want    []string
	}{
		"a double NVLink beside a host bridge":       {"dgx1-v100", 0, 3, []string{"P2PLinkHostBridge", "TwoNVLINKLinks"}},
		"two cards under one switch":                 {"v100-pcie-8", 0, 1, []string{"P2PLinkSingleSwitch"}},
		"two sockets":                                {"v100-pcie-8", 0, 7, []string{"P2PLinkCrossCPU"}},
		"a bridge of four links under root ports":    {"a6000-8-bridged", 2, 3, []string{"P2PLinkSameCPU", "FourNVLINKLinks"}},
		"links to a switch, which it does not count": {"dgx2", 0, 15, []string{"P2PLinkCrossCPU"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, l := range newAllocator(testBed(t, tc.machine).graph).devices[tc.a].Links[tc.b] {
				if l.GPU.Index != tc.b {
					t.Errorf("the link leads to GPU %d, want %d", l.GPU.Index, tc.b)
				}
				got = append(got, fmt.Sprint(l.Type))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestAllocatorReimplementation: the reimplementation equals the allocator. It compares the
// simulator's picker with the library itself, on every free set.
func TestAllocatorReimplementation(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"dgx1-v100", "v100-pcie-8", "h200-nvl-8", "dgx-h100", "a6000-8-bridged"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := testBed(t, name)
			a, again := newAllocator(b.graph), baseline.BestPartition()
			for free := nvtopo.Mask(1); free <= b.graph.Healthy(); free++ {
				for k := 1; k <= free.Len(); k++ {
					set, err := a.pick(free, k)
					got, ok := again.Pick(b.graph, free, k)
					if ok != (err == nil) || ok && got != set {
						t.Errorf("free %v, k %d: %v (%t), the allocator %v (%v)", free.Positions(), k, got.Positions(), ok, set.Positions(), err)
					}
				}
			}
		})
	}
}

// TestPaddedSetFailure: a padded set is a failure.
func TestPaddedSetFailure(t *testing.T) {
	// Two bridged GPUs on one socket, three on the other: dividing the five into
	// threes, the bridged pair and its padding score best.
	l := layout{
		name: "padded", gpus: 5, sockets: 2, gen: 4, perSwitch: 1, socketOf: func(i int) int { return when(i >= 2, 1) },
		lanes: func(i, j int) int { return when(i == 0 && j == 1, 12) },
	}
	g, err := l.graph()
	if err != nil {
		t.Fatal(err)
	}
	if set, err := newAllocator(g).pick(g.Healthy(), 3); !errors.Is(err, errPadded) {
		t.Errorf("picked %v (%v), want the padded set", set.Positions(), err)
	}
}

func TestBrokenFreeSets(t *testing.T) {
	for name, want := range map[string][2]nvtopo.Mask{
		"dgx1-v100":       {nvtopo.MaskOf(0, 1, 4, 5), nvtopo.MaskOf(0, 1, 4, 5, 6)},
		"a6000-8-bridged": {0x55, 0xd5},
		"two-tier-16":     {0x5555, 0xd555},
	} {
		single, mostly := broken(testBed(t, name).graph)
		if got := [2]nvtopo.Mask{single, mostly}; got != want {
			t.Errorf("%s: %v and %v, want %v and %v", name, single.Positions(), mostly.Positions(), want[0].Positions(), want[1].Positions())
		}
	}
}

// TestQuestionSeed: questions depend on the seed only.
func TestQuestionSeed(t *testing.T) {
	g := testBed(t, "dgx2").graph
	asked := questions(g, 7, 2)
	if diff := cmp.Diff(asked, questions(g, 7, 2), cmp.AllowUnexported(question{})); diff != "" {
		t.Error(diff)
	}
	if cmp.Equal(asked, questions(g, 8, 2), cmp.AllowUnexported(question{})) {
		t.Error("two seeds ask the same")
	}
	for _, q := range asked {
		if q.k < 1 || q.k > q.free.Len() || q.free&^g.Healthy() != 0 {
			t.Errorf("cannot be asked: %+v", q)
		}
	}
}

// TestReaderPlacement: the reader reads at the places that a table has: same slice length and place
// as an answer table.
func TestReaderPlacement(t *testing.T) {
	r := newReader(8)
	if len(r.sets) != 9*256 {
		t.Errorf("%d entries, want those of k 0 to 8", len(r.sets))
	}
	for _, q := range walk(8, 3) {
		if q.free == 0 || q.k < 1 || q.k > q.free.Len() {
			t.Fatalf("the walk asks for %d of %v", q.k, q.free.Positions())
		}
		if got, want := r.read(q.free, q.k), nvtopo.Mask(q.k*256)|q.free; got != want {
			t.Fatalf("read %d, want %d", got, want)
		}
	}
}
