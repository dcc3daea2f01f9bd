// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// racks is a preemptor that needs n units evicted in one of some racks.
type racks struct {
	of   []int // unit -> rack
	need int
	n    int // racks
	asks int
}

// inRack is a plan in one rack.
type inRack struct {
	*racks
	rack int
}

func (p inRack) Uses(unit int) bool { return p.of[unit] == p.rack }

func (r *racks) plan(gone []bool) (Plan, bool) {
	r.asks++
	free := make([]int, r.n)
	for i, g := range gone {
		if g {
			free[r.of[i]]++
		}
	}
	for rack := range free {
		if free[rack] >= r.need {
			return inRack{r, rack}, true
		}
	}
	return nil, false
}

func TestChoose(t *testing.T) {
	unit := func(kind Kind, priority int32, started int64) Unit {
		return Unit{Kind: kind, Priority: priority, Needs: NoUnit, Pods: []Pod{{Priority: priority, Started: started, Devices: 8}}}
	}
	twice := func(u Unit) Unit { u.Pods = append(u.Pods, u.Pods[0]); return u }
	small := func(u Unit) Unit { u.Pods[0].Devices = 1; return u }
	needs := func(u Unit, i int) Unit { u.Needs = i; return u }
	inBudget := func(u Unit, b int) Unit { u.Pods[0].Budgets = []int{b}; return u }
	tests := map[string]struct {
		units   []Unit
		racks   []int
		need    int
		allowed []int32
		want    []int
		wantNot bool
	}{
		"the rack of lower priority": {
			units: []Unit{unit(Single, 5, 0), unit(Single, 5, 0), unit(Single, 0, 0), unit(Single, 0, 0)}, racks: []int{0, 0, 1, 1}, need: 2, want: []int{2, 3},
		},
		"one of higher priority keeps its rack": {
			units: []Unit{unit(Single, 0, 0), unit(Single, 9, 0), unit(Single, 5, 0), unit(Single, 5, 0)}, racks: []int{0, 0, 1, 1}, need: 2, want: []int{2, 3},
		},
		"a pod rather than a gang": {
			units: []Unit{unit(Whole, 0, 0), unit(Single, 0, 0)}, racks: []int{0, 1}, need: 1, want: []int{1},
		},
		"a member too many rather than a pod": {
			units: []Unit{unit(Whole, 0, 0), needs(unit(Surplus, 0, 0), 0), unit(Single, 0, 0)}, racks: []int{0, 0, 0}, need: 1, want: []int{1},
		},
		"the member too many of the highest rank": {
			units: []Unit{unit(Whole, 0, 0), needs(unit(Surplus, 0, 9), 0), needs(unit(Surplus, 0, 0), 1)}, racks: []int{0, 0, 0}, need: 1, want: []int{2},
		},
		"a gang that goes leaves nothing behind": {
			units: []Unit{unit(Whole, 0, 0), needs(unit(Surplus, 0, 0), 0)}, racks: []int{0, 1}, need: 1, want: []int{1},
		},
		"no plan without the gang itself": {
			units: []Unit{unit(Whole, 0, 0), needs(unit(Surplus, 0, 0), 0)}, racks: []int{0, 0}, need: 2, want: []int{0, 1},
		},
		"an attempt rather than a pod that runs": {
			units: []Unit{unit(Single, 0, 0), unit(Attempt, 0, 0)}, racks: []int{0, 1}, need: 1, want: []int{1},
		},
		"a budget matters more than priority": {
			units: []Unit{inBudget(unit(Single, 0, 0), 0), unit(Single, 5, 0)}, racks: []int{0, 1}, need: 1, allowed: []int32{0}, want: []int{1},
		},
		"a budget that allows it does not matter": {
			units: []Unit{inBudget(unit(Single, 0, 0), 0), unit(Single, 5, 0)}, racks: []int{0, 1}, need: 1, allowed: []int32{1}, want: []int{0},
		},
		"the gang with fewer pods": {
			units: []Unit{twice(unit(Whole, 0, 9)), unit(Whole, 0, 0)}, racks: []int{0, 1}, need: 1, want: []int{1},
		},
		"few pods with many devices rather than many with few": {
			units: []Unit{small(unit(Single, 0, 9)), small(unit(Single, 0, 9)), unit(Single, 0, 0)}, racks: []int{0, 0, 1}, need: 1, want: []int{2},
		},
		"who started last": {
			units: []Unit{unit(Single, 0, 7), unit(Single, 0, 9)}, racks: []int{0, 1}, need: 1, want: []int{1},
		},
		"nobody where that is not enough": {
			units: []Unit{unit(Single, 0, 0), unit(Single, 0, 0)}, racks: []int{0, 1}, need: 2, wantNot: true,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			n := 0
			for _, rack := range tc.racks {
				n = max(n, rack+1)
			}
			r := &racks{of: tc.racks, need: tc.need, n: n}
			got, ok := Choose(tc.units, tc.allowed, 1<<20, r.plan)
			if ok == tc.wantNot {
				t.Fatalf("a plan: %t", ok)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("who goes (-want,+got)\n%s", diff)
			}
		})
	}
}

// TestChooseBruteForce: Choose agrees with a search of all subsets. Among all sets that leave a plan and
// no gang in parts, the chosen one spares the dearest unit that any spares, then the next one, and so on.
func TestChooseBruteForce(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 16))
	chosen, most := 0, 0
	for round := range 4000 {
		r, units := randomUnits(rnd)
		allowed := []int32{int32(rnd.IntN(3)), int32(rnd.IntN(2))}
		got, ok := Choose(units, allowed, 1<<20, r.plan)
		most = max(most, r.asks)
		want, wantOK := bruteUnits(units, order(units, allowed), r)
		if ok != wantOK {
			t.Fatalf("round %d: a plan: %t, want %t", round, ok, wantOK)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("round %d: %+v\nwho goes (-want,+got)\n%s", round, units, diff)
		}
		if ok {
			chosen++
		}
		if few, ok := Choose(units, allowed, 2, r.plan); ok {
			gone := make([]bool, len(units))
			for _, i := range few {
				gone[i] = true
			}
			if _, ok := r.plan(gone); !ok {
				t.Fatalf("round %d: with few steps %v go, and there is no plan", round, few)
			}
		}
	}
	t.Logf("%d choices are the best of all subsets, with at most %d plans each", chosen, most)
	if chosen < 1000 {
		t.Errorf("only %d rounds had a plan", chosen)
	}
}

func randomUnits(rnd *rand.Rand) (*racks, []Unit) {
	r := &racks{n: 1 + rnd.IntN(3), need: 1 + rnd.IntN(3)}
	var units []Unit
	add := func(kind Kind, priority int32, needs int) int {
		u := Unit{Kind: kind, Name: strconv.Itoa(len(units)), Priority: priority, Needs: needs}
		for range 1 + rnd.IntN(2) {
			pod := Pod{Priority: priority, Started: int64(rnd.IntN(3)), Devices: rnd.IntN(3)}
			if rnd.IntN(3) == 0 {
				pod.Budgets = []int{rnd.IntN(2)}
			}
			u.Pods = append(u.Pods, pod)
		}
		units, r.of = append(units, u), append(r.of, rnd.IntN(r.n))
		return len(units) - 1
	}
	for len(units) < 3+rnd.IntN(6) {
		priority := int32(rnd.IntN(3))
		switch rnd.IntN(3) {
		case 0:
			add(Single, priority, NoUnit)
		case 1:
			add(Attempt, priority, NoUnit)
		default:
			last := add(Whole, priority, NoUnit)
			for range rnd.IntN(3) {
				last = add(Surplus, priority, last)
			}
		}
	}
	return r, units
}

// bruteUnits tries all subsets.
func bruteUnits(units []Unit, order []int, r *racks) (victims []int, ok bool) {
	var best []bool
	for set := range 1 << len(units) {
		gone := make([]bool, len(units))
		for i := range gone {
			gone[i] = set>>i&1 != 0
		}
		whole := true
		for i, u := range units {
			whole = whole && (u.Needs == NoUnit || !gone[u.Needs] || gone[i])
		}
		if _, fits := r.plan(gone); !whole || !fits {
			continue
		}
		if best == nil || spares(order, gone, best) {
			best = gone
		}
	}
	for i, g := range best {
		if g {
			victims = append(victims, i)
		}
	}
	return victims, best != nil
}

// spares reports whether a spares a dearer unit than b.
func spares(order []int, a, b []bool) bool {
	for _, i := range order {
		if a[i] != b[i] {
			return b[i]
		}
	}
	return false
}
