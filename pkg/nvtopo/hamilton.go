// SPDX-License-Identifier: Apache-2.0

package nvtopo

import (
	"math/bits"
	"slices"
)

// ringBudget bounds the search for a ring through more than 16 GPUs, in steps.
const ringBudget = 1 << 16

// searchStep returns the ring bottleneck of a set of two or more by bisection over
// the steps: a ring over faster links is one over slower links too.
func (m *matrix) searchStep(s Mask) int {
	lo, hi := 0, len(m.steps)-1
	for lo < hi {
		if mid := (lo + hi) / 2; m.hasRingOver(s, m.steps[mid]) {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return lo
}

func (m *matrix) hasRingOver(s Mask, least int64) bool {
	var adj [MaxGPUs]Mask
	for r := s; r != 0; r &= r - 1 {
		v := r.First()
		for u := s &^ (1 << v); u != 0; u &= u - 1 {
			if m.bw[v*m.n+u.First()] >= least {
				adj[v] |= u & -u
			}
		}
	}
	ok, _ := hasRing(s, adj[:])
	return ok
}

// hasRing reports whether a set of two or more has a Hamiltonian ring (of two: an edge) over adj: at once
// when degrees decide it (a member with fewer than two neighbours; Dirac's theorem when all have at least
// half), exactly by dynamic programming up to 16 members, by search within a budget above. cost is
// roughly its time in microseconds, charged to the budget of a search over sets.
func hasRing(s Mask, adj []Mask) (ok bool, cost int) {
	k := s.Len()
	least := k
	for r := s; r != 0; r &= r - 1 {
		least = min(least, (adj[r.First()] & s &^ (r & -r)).Len())
	}
	switch {
	case k == 2:
		return least == 1, 0
	case least < 2:
		return false, 0
	case 2*least >= k:
		return true, 0
	case k > exactGPUs:
		p := pathSearch{adj: adj, start: s.First(), budget: ringBudget}
		ok = p.extend(p.start, s&(s-1))
		return ok, (ringBudget - p.budget) / 4
	}
	return hasLocalRing(s, adj), 1 << (k - 1) / 256
}

func hasLocalRing(s Mask, adj []Mask) bool {
	var l local
	var at [MaxGPUs]uint8
	for r := s; r != 0; r &= r - 1 {
		at[r.First()] = uint8(l.n)
		l.n++
	}
	for r := s; r != 0; r &= r - 1 {
		v := r.First()
		for u := adj[v] & s &^ (1 << v); u != 0; u &= u - 1 {
			l.adj[at[v]] |= 1 << at[u.First()]
		}
	}
	var small [1 << (maxGroup - 1)]uint16 // groups of the residual stay off the heap
	reach := small[:]
	if l.n > maxGroup {
		reach = make([]uint16, 1<<(l.n-1))
	}
	l.paths(reach)
	return reach[1<<(l.n-1)-1]&l.adj[0] != 0
}

// pathSearch is a depth-first search for a ring, lowest neighbour first.
type pathSearch struct {
	adj    []Mask
	start  int
	path   []int
	budget int
}

// extend continues the path at v through all of left and back to the start.
func (p *pathSearch) extend(v int, left Mask) bool {
	if p.budget--; p.budget < 0 {
		return false
	}
	p.path = append(p.path, v)
	if left == 0 {
		if p.adj[v].Has(p.start) {
			return true
		}
	} else if p.open(v, left) {
		for r := p.adj[v] & left; r != 0; r &= r - 1 {
			u := bits.TrailingZeros64(uint64(r))
			if p.extend(u, left&^(1<<u)) {
				return true
			}
		}
	}
	p.path = p.path[:len(p.path)-1]
	return false
}

// open reports whether every GPU left still has two neighbours among the others left, the path's end and
// its start.
func (p *pathSearch) open(v int, left Mask) bool {
	ends := left | 1<<v | 1<<p.start
	for r := left; r != 0; r &= r - 1 {
		if (p.adj[r.First()] & ends).Len() < 2 {
			return false
		}
	}
	return true
}

// searchRing is ringOrder above 16 members. It returns the first ring of a depth-first search, which is
// the lexicographically smallest, with links exchanged as long as that raises the sum; the members in
// ascending order when the budget ends first.
func (m *matrix) searchRing(s Mask, least int64) []int {
	p := pathSearch{adj: m.adjacency(least), start: s.First(), budget: ringBudget}
	if !p.extend(p.start, s&(s-1)) {
		return s.Positions()
	}
	m.exchangeLinks(p.path, least)
	return p.path
}

// exchangeLinks reverses parts of a ring as long as two links of at least the given bandwidth replace two
// with a smaller sum, within a budget. The ring still begins at its first member, with the lower of that
// member's two neighbours.
func (m *matrix) exchangeLinks(ring []int, least int64) {
	k := len(ring)
	link := func(i, j int) int64 { return m.bw[ring[i]*m.n+ring[j%k]] }
	budget := ringBudget
	for raised := true; raised; {
		raised = false
		for i := range k - 2 {
			for j := i + 2; j < k && budget > 0; j++ {
				budget--
				if i == 0 && j == k-1 {
					continue // the same two links
				}
				across, back := link(i, j), link(i+1, j+1)
				if across >= least && back >= least && across+back > link(i, i+1)+link(j, j+1) {
					slices.Reverse(ring[i+1 : j+1])
					raised = true
				}
			}
		}
	}
	if ring[1] > ring[k-1] {
		slices.Reverse(ring[1:])
	}
}
