// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"math/bits"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// enumerator is plain enumeration, the simplest implementation: every set of k free
// GPUs, by the ring bottleneck and then the sum of the bandwidths. It prepares
// nothing but a copy of the matrix, and examines only sets whose bound is not below
// the best ring so far.
type enumerator struct {
	n     int
	bw    []int64    // n x n, kB/s
	reach []uint64   // scratch of ring: possible ends, by the path's members
	local [64]int    // scratch of ring: members of the set
	next  [64]uint64 // scratch of ring: neighbours by member
}

func newEnumerator(g *nvtopo.Graph) *enumerator {
	e := &enumerator{n: g.Len(), bw: make([]int64, g.Len()*g.Len())}
	for i := range e.n {
		for j := range e.n {
			e.bw[i*e.n+j] = g.Link(i, j).Bandwidth
		}
	}
	return e
}

// best returns the best set of k of free, its ring in kB/s and whether one exists.
func (e *enumerator) best(free nvtopo.Mask, k int) (set nvtopo.Mask, ring int64, ok bool) {
	if k < 1 || k > free.Len() {
		return 0, 0, false
	}
	ring = -1
	var most int64
	e.subsets(free, k, 0, func(s nvtopo.Mask) {
		sum := e.pairSum(s)
		if b := e.bound(s); b < ring || b == ring && sum <= most {
			return
		}
		if r := e.ring(s); r > ring || r == ring && sum > most {
			set, ring, most = s, r, sum
		}
	})
	return set, ring, true
}

// subsets visits taken with every k members of left.
func (e *enumerator) subsets(left nvtopo.Mask, k int, taken nvtopo.Mask, visit func(nvtopo.Mask)) {
	if k == 0 {
		visit(taken)
		return
	}
	for ; left.Len() >= k; left &= left - 1 {
		e.subsets(left&(left-1), k-1, taken|left&-left, visit)
	}
}

func (e *enumerator) pairSum(s nvtopo.Mask) int64 {
	var sum int64
	for ; s != 0; s &= s - 1 {
		row := s.First() * e.n
		for r := s & (s - 1); r != 0; r &= r - 1 {
			sum += e.bw[row+r.First()]
		}
	}
	return sum
}

// bound returns an upper bound on the ring of s: every GPU uses two of its links, or
// one if there are only two GPUs.
func (e *enumerator) bound(s nvtopo.Mask) int64 {
	if s.Len() < 2 {
		return 0
	}
	bound := int64(math.MaxInt64)
	for m := s; m != 0; m &= m - 1 {
		i := m.First()
		var first, second int64
		for r := s &^ (m & -m); r != 0; r &= r - 1 {
			switch bw := e.bw[i*e.n+r.First()]; {
			case bw > first:
				first, second = bw, first
			case bw > second:
				second = bw
			}
		}
		if s.Len() == 2 {
			second = first
		}
		bound = min(bound, second)
	}
	return bound
}

// ring returns the greatest bottleneck of a ring over s: the greatest bandwidth whose
// links still form one. Only bandwidths up to the bound are tried.
func (e *enumerator) ring(s nvtopo.Mask) int64 {
	level := e.bound(s)
	if s.Len() < 4 {
		// Up to three GPUs have only one ring, and the bound is its weakest link.
		return level
	}
	for !e.hamiltonian(s, level) {
		level = e.below(s, level)
	}
	return level
}

// below returns the greatest bandwidth within s that is less than level.
func (e *enumerator) below(s nvtopo.Mask, level int64) int64 {
	var found int64
	for m := s; m != 0; m &= m - 1 {
		row := m.First() * e.n
		for r := m & (m - 1); r != 0; r &= r - 1 {
			if bw := e.bw[row+r.First()]; bw < level {
				found = max(found, bw)
			}
		}
	}
	return found
}

// hamiltonian reports whether the links of at least level form a ring over s:
// dynamic programming over paths from the first member, O(2^k k).
func (e *enumerator) hamiltonian(s nvtopo.Mask, level int64) bool {
	k := 0
	for m := s; m != 0; m &= m - 1 {
		e.local[k] = m.First()
		k++
	}
	for a := range k {
		e.next[a] = 0
		for b := range k {
			if a != b && e.bw[e.local[a]*e.n+e.local[b]] >= level {
				e.next[a] |= 1 << b
			}
		}
	}
	if len(e.reach) < 1<<k {
		e.reach = make([]uint64, 1<<k)
	}
	reach := e.reach[:1<<k]
	clear(reach)
	reach[1] = 1
	for path := 1; path < len(reach); path += 2 { // paths with member 0
		for ends := reach[path]; ends != 0; ends &= ends - 1 {
			for to := e.next[bits.TrailingZeros64(ends)] &^ uint64(path); to != 0; to &= to - 1 {
				reach[uint64(path)|to&-to] |= to & -to
			}
		}
	}
	return reach[len(reach)-1]&e.next[0] != 0
}
