// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/oracle"
)

func tables(tb testing.TB, name string) *nvtopo.Tables {
	tb.Helper()
	m, err := machine.Lookup(name)
	if err != nil {
		tb.Fatal(err)
	}
	g, err := m.Graph()
	if err != nil {
		tb.Fatal(err)
	}
	return nvtopo.NewTables(g, nvtopo.DefaultWeights())
}

// TestSlotSets: slots are disjoint linked sets.
func TestSlotSets(t *testing.T) {
	single := nvtopo.Constraint{Policy: nvtopo.PolicySingleNUMANode}
	cases := map[string]struct {
		machine string
		free    nvtopo.Mask
		gpus    int
		con     nvtopo.Constraint
		want    []int // by band
	}{
		"a whole node holds one member of 8":               {"dgx-h100", 0xff, 8, nvtopo.Constraint{}, []int{1, 1, 1, 1, 1}},
		"and two of 4":                                     {"dgx-h100", 0xff, 4, nvtopo.Constraint{}, []int{2, 2, 2, 2, 2}},
		"and eight of 1":                                   {"dgx-h100", 0xff, 1, nvtopo.Constraint{}, []int{8, 8, 8, 8, 8}},
		"2 and 2 free are no slot of a single NUMA node":   {"dgx-h100", 0b0011_0011, 4, single, []int{0, 0, 0, 0, 0}},
		"without that wish they are":                       {"dgx-h100", 0b0011_0011, 4, nvtopo.Constraint{}, []int{1, 1, 1, 1, 1}},
		"4 free on one NUMA node are a slot":               {"dgx-h100", 0b0000_1111, 4, single, []int{1, 1, 1, 1, 1}},
		"a V100 pair without NVLink is the worst band":     {"dgx1-v100", nvtopo.MaskOf(0, 5), 2, nvtopo.Constraint{}, []int{0, 0, 0, 0, 1}},
		"and none at all if NVLink is asked for":           {"dgx1-v100", nvtopo.MaskOf(0, 5), 2, nvtopo.Constraint{MinLink: nvtopo.Class{Kind: nvtopo.KindNVLink, Lanes: 1}}, []int{0, 0, 0, 0, 0}},
		"an empty V100 node divides into best pairs":       {"dgx1-v100", 0xff, 2, nvtopo.Constraint{}, []int{4, 4, 4, 4, 4}},
		"nothing free":                                     {"dgx1-v100", 0, 2, nvtopo.Constraint{}, []int{0, 0, 0, 0, 0}},
		"16 GPUs divide exactly":                           {"dgx2", 0xffff, 4, nvtopo.Constraint{}, []int{4, 4, 4, 4, 4}},
		"16 GPUs, one used":                                {"dgx2", 0xfffe, 3, nvtopo.Constraint{}, []int{5, 5, 5, 5, 5}},
		"no GPUs are no slot; see Unlinked":                {"dgx2", 0xffff, 0, nvtopo.Constraint{}, []int{0, 0, 0, 0, 0}},
		"more GPUs than there are":                         {"hgx-a100-4", 0xf, 5, nvtopo.Constraint{}, []int{0, 0, 0, 0, 0}},
		"positions that the machine does not have":         {"hgx-a100-4", 0xff, 2, nvtopo.Constraint{}, []int{2, 2, 2, 2, 2}},
		"bandwidth that no pair of the machine has at all": {"hgx-a100-4", 0xf, 2, nvtopo.Constraint{MinBandwidth: 1e12}, []int{0, 0, 0, 0, 0}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := NewSlotCounter().Slots(&Machine{Tables: tables(t, tc.machine), Healthy: ^nvtopo.Mask(0), Free: tc.free}, tc.gpus, tc.con)
			var got []int
			for b := range tc.want {
				got = append(got, s.Count(b))
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("(-want, +got):\n%s", d)
			}
		})
	}
}

// families calls visit with every choice of disjoint sets of k GPUs of free that pass.
func families(o *oracle.Oracle, free nvtopo.Mask, k int, con nvtopo.Constraint, sets []nvtopo.Mask, visit func([]nvtopo.Mask)) {
	if len(sets) > 0 {
		visit(sets)
	}
	var choose func(set, rest nvtopo.Mask)
	choose = func(set, rest nvtopo.Mask) {
		if set.Len() == k {
			// In ascending order of lowest GPUs, so that no family comes twice.
			if (len(sets) == 0 || sets[len(sets)-1].First() < set.First()) && o.Permits(set, con) {
				families(o, free&^set, k, con, append(slices.Clone(sets), set), visit)
			}
			return
		}
		for r := rest; r != 0; r &= r - 1 {
			choose(set|r&-r, r&(r-1))
		}
	}
	choose(0, free)
}

// bandOf compares a ring with the best of as many GPUs on the whole machine.
func bandOf(o *oracle.Oracle, n int, set nvtopo.Mask) int {
	if set.Len() < 2 {
		return 0
	}
	var best int64
	for s := nvtopo.Mask(1); s < 1<<n; s++ {
		if s.Len() == set.Len() {
			_, ring := o.Ring(s)
			best = max(best, ring)
		}
	}
	_, ring := o.Ring(set)
	for band, share := range []int64{4, 3, 2, 1} {
		if 4*ring >= share*best {
			return band
		}
	}
	return 4
}

// TestSlotMaximum: the slots are as many as any family of sets has.
func TestSlotMaximum(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 8))
	for _, name := range []string{"dgx1-v100", "a6000-8-bridged", "dgx-h100", "power9-v100-4"} {
		tb := tables(t, name)
		n := tb.Graph().Len()
		o := oracle.New(tb.Graph())
		bands := map[nvtopo.Mask]int{}
		slotter := NewSlotCounter()
		for range 60 {
			free := nvtopo.Mask(r.Uint64()) & nvtopo.FullMask(n)
			k := 1 + r.IntN(4)
			con := nvtopo.Constraint{Policy: nvtopo.Policy(r.IntN(4))}
			got := slotter.Slots(&Machine{Tables: tb, Healthy: nvtopo.FullMask(n), Free: free}, k, con)
			want := map[int]int{} // members -> best worst band
			left := map[int]*big.Rat{}
			families(o, free, k, con, nil, func(sets []nvtopo.Mask) {
				worst := 0
				rest := free
				for _, s := range sets {
					if _, ok := bands[s]; !ok {
						bands[s] = bandOf(o, n, s)
					}
					worst = max(worst, bands[s])
					rest &^= s
				}
				m := len(sets)
				known, ok := want[m]
				if ok && known < worst {
					return
				}
				value := oracle.Residual(tb.Graph(), rest)
				if !ok || worst < known || value.Cmp(left[m]) > 0 {
					want[m], left[m] = worst, value
				}
			})
			if len(want) != len(got.divisions) {
				t.Fatalf("%s, free %b, %d GPUs, %s: %d members, want %d", name, free, k, con.Policy, len(got.divisions), len(want))
			}
			for members, worst := range want {
				checkDivision(t, tb, o, free, con, got, members, worst, left[members], bands)
			}
		}
	}
}

func checkDivision(t *testing.T, tb *nvtopo.Tables, o *oracle.Oracle, free nvtopo.Mask, con nvtopo.Constraint, got *Slots, members, worst int, left *big.Rat, bands map[nvtopo.Mask]int) {
	t.Helper()
	if got.Count(worst) < members || worst > 0 && got.Count(worst-1) >= members {
		t.Fatalf("free %b: %d members are in band %d: %v", free, members, worst, got.count)
	}
	rest := free
	for _, s := range got.Sets(members) {
		if s&^rest != 0 || !o.Permits(s, con) || bands[s] > worst {
			t.Fatalf("free %b: %v for %d members", free, got.Sets(members), members)
		}
		rest &^= s
	}
	if value := oracle.Residual(tb.Graph(), rest); value.Cmp(left) != 0 {
		t.Fatalf("free %b: %d members leave %s, want %s", free, members, value.FloatString(0), left.FloatString(0))
	}
}

// TestKeep: keep leaves sets out and is part of the memo's key.
func TestKeep(t *testing.T) {
	tb := tables(t, "dgx-h100")
	s := NewSlotCounter()
	firstSocket := func(set nvtopo.Mask) bool { return set&^0x0f == 0 }
	secondSocket := func(set nvtopo.Mask) bool { return set&^0xf0 == 0 }
	for range 2 { // worked out, then remembered
		for _, tc := range []struct {
			keep func(nvtopo.Mask) bool
			key  uint64
			want []nvtopo.Mask
		}{
			{nil, 7, []nvtopo.Mask{0x0f, 0xf0}}, // without a Keep the key has no effect
			{firstSocket, 0, []nvtopo.Mask{0x0f}},
			{secondSocket, 7, []nvtopo.Mask{0xf0}},
		} {
			m := &Machine{Tables: tb, Healthy: 0xff, Free: 0xff, Keep: tc.keep, KeepKey: tc.key}
			got := s.Slots(m, 4, nvtopo.Constraint{Policy: nvtopo.PolicySingleNUMANode})
			if d := cmp.Diff(tc.want, got.Sets(got.Count(worstBand))); d != "" {
				t.Errorf("key %d (-want, +got):\n%s", tc.key, d)
			}
		}
	}
}

// TestLargeMachineSlots: slots of machines above 16 GPUs are a lower bound.
func TestLargeMachineSlots(t *testing.T) {
	const n = 20
	gpus := make([]nvtopo.GPU, n)
	links := map[[2]int]nvtopo.Link{}
	for i := range gpus {
		gpus[i] = nvtopo.GPU{Index: i}
		for j := range i {
			links[[2]int{j, i}] = nvtopo.NewLink(nvtopo.Class{Kind: nvtopo.KindNVLink, Lanes: 18}, nvtopo.PCIeUnknown, 5, 25_000_000, true)
		}
	}
	g, err := nvtopo.NewGraph(gpus, nil, nil, links)
	if err != nil {
		t.Fatal(err)
	}
	s := NewSlotCounter().Slots(&Machine{
		Tables: nvtopo.NewTables(g, nvtopo.DefaultWeights()), Healthy: nvtopo.FullMask(n), Free: nvtopo.FullMask(n - 1),
	}, 4, nvtopo.Constraint{})
	if s.Count(0) != 4 || !s.estimated {
		t.Errorf("%d members, estimated %v", s.Count(0), s.estimated)
	}
	none := NewSlotCounter().Slots(&Machine{
		Tables: nvtopo.NewTables(g, nvtopo.DefaultWeights()), Healthy: nvtopo.FullMask(n), Free: nvtopo.FullMask(n - 1),
		Keep: func(nvtopo.Mask) bool { return false },
	}, 4, nvtopo.Constraint{})
	if none.Count(worstBand) != 0 {
		t.Errorf("%d members of sets that nobody keeps", none.Count(worstBand))
	}
	var used nvtopo.Mask
	for _, set := range s.Sets(4) {
		if set.Len() != 4 || set&used != 0 {
			t.Errorf("sets %v", s.Sets(4))
		}
		used |= set
	}
	tr := tree(t, "rack", "a r0")
	plan, err := Place(tr, &Request{Shapes: []Shape{{GPUs: 4, Nodes: []Supply{{Slots: s}}}}, Members: make([]Member, 2)})
	if err != nil || plan.Exact {
		t.Errorf("plan %+v, %v: want one that is not exact", plan, err)
	}
	// The other rack is better as far as is known: the room of the large machine is only a lower bound.
	tr = tree(t, "rack", "a r0\nb r1")
	plan, err = Place(tr, &Request{Shapes: []Shape{{GPUs: 4, Nodes: []Supply{{Slots: s}, {Slots: Unlinked(5)}}}}, Members: make([]Member, 5)})
	if err != nil || plan.Exact || plan.Nodes[0] != 1 {
		t.Errorf("plan %+v, %v: want node b, and not exact", plan, err)
	}
}
