// SPDX-License-Identifier: Apache-2.0

package nodeindex

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// site is machines by node and where they are, beside an index of the same.
type site struct {
	index    *Index
	machines map[int]Machine
	places   Places
}

// around counts machines one by one: the clear ones and the whole ones in the leaf of a node,
// and the whole ones in its spine.
func (s *site) around(node int) (out [3]int) {
	leafOf := func(n int) int {
		if n < len(s.places.Leaf) {
			return s.places.Leaf[n]
		}
		return 0
	}
	spineOf := func(n int) int {
		if len(s.places.Spine) == 0 {
			return 0
		}
		return s.places.Spine[leafOf(n)]
	}
	for n, m := range s.machines {
		sound := m.Healthy.Len() == m.Tables.Graph().Len() && m.Degraded == 0
		whole := sound && m.Free == m.Healthy && m.Held == 0 && !m.Unknown
		if leafOf(n) == leafOf(node) {
			if sound && !m.Singles {
				out[0]++
			}
			if whole {
				out[1]++
			}
		}
		if spineOf(n) == spineOf(node) && whole {
			out[2]++
		}
	}
	return out
}

// unpacked are the numbers of a Spare.
func unpacked(s Spare) [3]int {
	return [3]int{int(s >> 26), int(s >> 13 & 0x1fff), int(s & 0x1fff)}
}

// best is the choice by looking at each machine: of the equal ones, the leaf with the fewest
// clear and then whole machines, the spine with the fewest whole ones, then the lowest node.
func (s *site) best(d *Demand, w *Order) (node int, ok bool) {
	equal := linear(s.machines, d, w)
	node, least := -1, [3]int{}
	for n := range equal {
		here := s.around(n)
		if c := slices.Compare(here[:], least[:]); node < 0 || c < 0 || c == 0 && n < node {
			node, least = n, here
		}
	}
	return node, node >= 0
}

// randomPlaces puts nodes into leaves of uneven size, and leaves into spines. The last nodes
// are in none.
func randomPlaces(r *rand.Rand, nodes int) Places {
	leaves := 1 + r.IntN(8)
	p := Places{Leaf: make([]int, nodes-r.IntN(3)), Spine: make([]int, leaves)}
	for i := range p.Spine {
		p.Spine[i] = r.IntN(3)
	}
	for i := range p.Leaf {
		p.Leaf[i] = min(r.IntN(leaves), r.IntN(leaves))
	}
	return p
}

// change does something to the site: a machine comes, changes or goes, or the fabric is
// another one.
func (s *site) change(r *rand.Rand, kinds []*nvtopo.Tables, nodes int) {
	node := r.IntN(nodes)
	switch what := r.IntN(60); {
	case what == 0:
		s.places = Places{}
		s.index.SetPlaces(nil)
	case what < 4:
		s.places = randomPlaces(r, nodes)
		s.index.SetPlaces(&s.places)
	case what < 8:
		s.index.Remove(node)
		delete(s.machines, node)
	default:
		tb := kinds[r.IntN(len(kinds))]
		full := nvtopo.FullMask(tb.Graph().Len())
		// Few states, so that many machines are equal.
		m := Machine{Tables: tb, Healthy: full, Free: []nvtopo.Mask{full, full, full, full &^ 3, 3, 0}[r.IntN(6)]}
		switch r.IntN(12) {
		case 0:
			m.Healthy &^= 1
			m.Free &^= 1
		case 1:
			m.Degraded = 1
		case 2:
			m.Held = 1
		case 3:
			m.Unknown = true
		}
		m.Singles = m.Free != full && r.IntN(2) == 0
		s.index.Put(node, m)
		s.machines[node] = m
	}
}

// TestBrokenLeafFirst: the machine in a broken leaf is taken among equal ones. It compares every choice,
// and the order of all equal machines, with a search that recounts the machines.
func TestBrokenLeafFirst(t *testing.T) {
	const nodes = 40
	kinds := tables(t, "dgx-h100", "a100-pcie-4-bridged")
	w := DefaultOrder()
	decided := 0
	for seed := range uint64(6) {
		r := rand.New(rand.NewPCG(seed, 16))
		s := &site{index: NewIndex(), machines: map[int]Machine{}}
		for step := range 1500 {
			s.change(r, kinds, nodes)
			d := Demand{GPUs: 1 << r.IntN(4), KnownOnly: r.IntN(2) == 0}
			want, wantOK := s.best(&d, &w)
			got, _, ok := s.index.Best(&d, &w)
			if ok != wantOK || ok && got != want {
				t.Fatalf("seed %d step %d, %+v: node %d (%t), by brute force %d (%t)", seed, step, d, got, ok, want, wantOK)
			}
			if ok {
				decided += s.checkOrder(t, &d, &w)
			}
			for n := range nodes {
				if got, want := unpacked(s.index.Spare(n)), s.around(n); got != want {
					t.Fatalf("seed %d step %d: spare of node %d is %v, by brute force %v", seed, step, n, got, want)
				}
			}
		}
	}
	if decided < 1000 {
		t.Errorf("the fabric decided %d times of 9000: this was not a test", decided)
	}
}

// checkOrder checks that InOrder yields once every machine between which the score decides, best first,
// and returns 1 if Spare distinguished some of them.
func (s *site) checkOrder(t *testing.T, d *Demand, w *Order) (decided int) {
	t.Helper()
	cs, _ := s.index.Top(s.index.Candidates(d, nil), d, w, 101)
	want := 0
	for i := range cs {
		want += cs[i].Bucket.Len()
	}
	var seen []int
	raw, spare := int64(-1), int64(-1)
	for tied := range s.index.InOrder(cs) {
		if raw >= 0 && (tied.Raw > raw || tied.Raw == raw && int64(tied.Spare) <= spare) {
			t.Fatalf("%+v: raw %d with spare %#x comes after %d with %#x", d, tied.Raw, tied.Spare, raw, spare)
		}
		if tied.Raw == raw {
			decided = 1
		}
		raw, spare = tied.Raw, int64(tied.Spare)
		for n := range tied.Nodes() {
			seen = append(seen, n)
			m := s.machines[n]
			if want := s.around(n); unpacked(tied.Spare) != want || s.index.where[n].group.bucket.Machine.key() != m.key() {
				t.Fatalf("%+v: node %d is listed with spare %v, by brute force %v", d, n, unpacked(tied.Spare), want)
			}
		}
	}
	slices.Sort(seen)
	if len(slices.Compact(seen)) != want || len(seen) != want {
		t.Fatalf("%+v: %d machines are listed, %d of them different, want %d", d, len(seen), len(slices.Compact(seen)), want)
	}
	return decided
}

// TestSpareRange: machines beyond the range of Spare are treated as equal. It has more in one leaf than
// Spare can hold.
func TestSpareRange(t *testing.T) {
	tb := tables(t, "a100-pcie-4-bridged")[0]
	x := NewIndex()
	for node := range maxSpare + 5 {
		x.Put(node, Machine{Tables: tb, Healthy: 0xf, Free: 0xf})
	}
	if got := x.Spare(0); int64(got) != NoSpare-1 {
		t.Errorf("spare is %#x, want the greatest there is", got)
	}
}

// BenchmarkInOrder is the choice among 5000 whole machines, in leaves of 8 and of 100.
func BenchmarkInOrder(b *testing.B) {
	tb := tables(b, "dgx-h100")[0]
	for name, size := range map[string]int{"no fabric": 5000, "leaves of 100": 100, "leaves of 8": 8} {
		b.Run(name, func(b *testing.B) {
			x := NewIndex()
			p := &Places{}
			for node := range 5000 {
				p.Leaf = append(p.Leaf, node/size)
				if node%size == 0 {
					p.Spine = append(p.Spine, node/size%4)
				}
			}
			x.SetPlaces(p)
			for node := range 5000 {
				x.Put(node, Machine{Tables: tb, Healthy: 0xff, Free: 0xff})
			}
			w := DefaultOrder()
			b.ReportAllocs()
			var into []Candidate
			for b.Loop() {
				d := Demand{GPUs: 8}
				into = x.Candidates(&d, into[:0])
				cs, _ := x.Top(into, &d, &w, 0)
				for tied := range x.InOrder(cs) {
					for range tied.Nodes() {
						break
					}
					break
				}
			}
		})
	}
}
