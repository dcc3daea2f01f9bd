// SPDX-License-Identifier: Apache-2.0

package nvtopo

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

// Split divides a set into disjoint subsets of the given sizes, in their order. It maximises the worst
// ring among the subsets of two or more, then the sum of the rings, then minimises the sum of the
// subsets' numbers of NUMA nodes, then that of their NUMA distances, then takes the lexicographically
// smallest sequence of sets. A size of 0 gives an empty set; it fails when the sizes do not fit.
//
// It is exact up to 16 GPUs in the set. Above that the largest subsets are taken first, each the best
// that Pick finds among the remaining GPUs.
func (t *Tables) Split(set Mask, sizes []int) ([]Mask, bool) {
	set &= t.c.all
	total := 0
	for _, k := range sizes {
		if k < 0 || k > set.Len()-total {
			return nil, false
		}
		total += k
	}
	if len(sizes) == 1 && total == set.Len() {
		return []Mask{set}, true // most pods: one container with GPUs
	}
	if set.Len() > exactGPUs {
		return t.splitGreedily(set, sizes), true
	}
	s := newSplitter(&t.c.matrix, set, sizes)
	s.solve()
	return s.sets(), true
}

// Groups divides the free GPUs into as many groups of g as fit, for data parallelism; nil when none fits.
func (t *Tables) Groups(free Mask, g int) []Mask {
	free &= t.c.all
	if g < 1 || free.Len() < g {
		return nil
	}
	groups, _ := t.Split(free, slices.Repeat([]int{g}, free.Len()/g)) // fits by construction
	return groups
}

func (t *Tables) splitGreedily(set Mask, sizes []int) []Mask {
	order := make([]int, len(sizes))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(sizes[b], sizes[a]) })
	out := make([]Mask, len(sizes))
	for _, i := range order {
		s, _ := t.Pick(set, set, sizes[i], Constraint{AllowMixedModels: true}) // sizes fit, nothing is excluded
		out[i] = s
		set &^= s
	}
	return out
}

// splitter is the dynamic program of one Split over the subsets of its set, whose members are renumbered
// 0, 1, … in ascending order. The number of members left before subset i is chosen identifies i (empty
// subsets aside), so tables indexed by the members left serve all i.
//
// "Worst, then sum" does not decompose, so the worst is settled first, then the sum among divisions whose
// subsets all reach it, then the spread among those of that sum.
type splitter struct {
	steps  []int64
	ring   []uint8
	spread []int64 // of a local set: its NUMA nodes, then the greatest distance between two of them
	global []Mask  // the set of positions a local set stands for
	sizes  []int
	// By members left: the best that the remaining subsets can reach.
	worst []int64 // the worst ring
	sum   []int64 // of the rings, each at least floor, or impossible
	near  []int64 // the sum of the spreads, negated, of subsets with the best sum; or impossible
	floor int64
}

// impossible is worse than the value of any subset.
const impossible = math.MinInt64

func newSplitter(m *matrix, set Mask, sizes []int) *splitter {
	n := set.Len()
	pos := set.Positions()
	bw := make([]int64, n*n)
	for i, p := range pos {
		for j, q := range pos {
			bw[i*n+j] = m.bw[p*m.n+q]
		}
	}
	s := &splitter{
		steps: m.stepsOf(set), sizes: sizes,
		global: make([]Mask, 1<<n), worst: make([]int64, 1<<n), sum: make([]int64, 1<<n), near: make([]int64, 1<<n),
	}
	s.ring = ringTable(n, bw, s.steps)
	for l := 1; l < len(s.global); l++ {
		s.global[l] = s.global[l&(l-1)] | 1<<pos[bits.TrailingZeros16(uint16(l))]
	}
	s.spread = m.spreads(s.global)
	return s
}

// spreads returns for each local set a number that is smaller for fewer NUMA nodes, and at equal numbers
// for a smaller distance. A local set comes after its subsets.
func (m *matrix) spreads(global []Mask) []int64 {
	const distances = 1 << 32
	spread := make([]int64, len(global))
	for l := 1; l < len(global); l++ {
		rest := l & (l - 1)
		distance := spread[rest] % distances
		low := (global[l] &^ global[rest]).First()
		for r := global[rest]; r != 0; r &= r - 1 {
			distance = max(distance, int64(m.dist[low*m.n+r.First()]))
		}
		spread[l] = int64(m.numaCount(global[l]))*distances + distance
	}
	return spread
}

// stepsOf returns the distinct bandwidths inside a set, descending.
func (m *matrix) stepsOf(set Mask) []int64 {
	var steps []int64
	for _, step := range m.steps {
		if slices.ContainsFunc(set.Positions(), func(i int) bool {
			for j := range set.All() {
				if i != j && m.bw[i*m.n+j] == step {
					return true
				}
			}
			return false
		}) {
			steps = append(steps, step)
		}
	}
	return steps
}

// value returns the ring of a subset and whether it has one.
func (s *splitter) value(l Mask) (int64, bool) {
	if l&(l-1) == 0 {
		return 0, false
	}
	return s.steps[s.ring[l]], true
}

// solve fills the tables from the last subset to the first.
func (s *splitter) solve() {
	full := Mask(len(s.global) - 1)
	s.fill(s.worst, math.MaxInt64, func(t, rest Mask) int64 {
		if v, ok := s.value(t); ok {
			return min(v, s.worst[rest])
		}
		return s.worst[rest]
	})
	s.floor = s.worst[full]
	s.fill(s.sum, 0, s.sumWith)
	s.fill(s.near, 0, s.nearWith)
}

// sumWith returns the best sum that begins with subset t and leaves rest, or impossible.
func (s *splitter) sumWith(t, rest Mask) int64 {
	v, ok := s.value(t)
	if s.sum[rest] == impossible || ok && v < s.floor {
		return impossible
	}
	return v + s.sum[rest]
}

// nearWith returns the best negated sum of spreads that begins with subset t and leaves rest, or
// impossible.
func (s *splitter) nearWith(t, rest Mask) int64 {
	if s.near[rest] == impossible || s.sumWith(t, rest) != s.sum[t|rest] {
		return impossible
	}
	return s.near[rest] - s.spread[t]
}

// fill computes table[left] for all sets that can be left before each subset: the greatest worth(subset,
// rest), which may read table[rest]; end is the value after the last.
func (s *splitter) fill(table []int64, end int64, worth func(t, rest Mask) int64) {
	var walk, inner combinations
	n := bits.TrailingZeros(uint(len(s.global)))
	full := Mask(len(s.global) - 1)
	left := n
	for _, k := range s.sizes {
		left -= k
	}
	for m := range subsetsOf(&walk, full, left) {
		table[m] = end
	}
	for _, k := range slices.Backward(s.sizes) {
		if k == 0 {
			continue
		}
		left += k
		for m := range subsetsOf(&walk, full, left) {
			best := int64(impossible)
			for t := inner.start(m, k); t != 0; t = inner.next(t) {
				best = max(best, worth(t, m&^t))
			}
			table[m] = best
		}
	}
}

// subsetsOf yields the subsets of k members of m, including the empty one for k = 0.
func subsetsOf(c *combinations, m Mask, k int) func(yield func(Mask) bool) {
	return func(yield func(Mask) bool) {
		if k == 0 {
			yield(0)
			return
		}
		for t := c.start(m, k); t != 0 && yield(t); {
			t = c.next(t)
		}
	}
}

// sets returns the lexicographically smallest best division, from the last table.
func (s *splitter) sets() []Mask {
	var walk combinations
	out := make([]Mask, len(s.sizes))
	left := Mask(len(s.global) - 1)
	for i, k := range s.sizes {
		if k == 0 {
			continue
		}
		var pick Mask
		for t := walk.start(left, k); t != 0; t = walk.next(t) {
			if s.nearWith(t, left&^t) == s.near[left] && (pick == 0 || t.LexLess(pick)) {
				pick = t
			}
		}
		out[i] = s.global[pick]
		left &^= pick
	}
	return out
}
