// SPDX-License-Identifier: Apache-2.0

package nvtopo

import "math/bits"

// noRing marks sets of fewer than two GPUs in a ring table.
const noRing = 0xff

// ringTable returns, for every set of up to 16 vertices, the index of its ring
// bottleneck in steps (distinct bandwidths, descending; 16 vertices have at
// most 120). bw is n x n.
//
// Per step: reach[s] are the ends of paths that start at the lowest vertex of s
// and visit all of s over links of at least that bandwidth; the set has a ring
// when such an end is joined to the start (of two vertices, the link itself).
// O(steps · 2^n · n) bit operations.
func ringTable(n int, bw, steps []int64) []uint8 {
	ring := make([]uint8, 1<<n)
	left := len(ring)
	for s := range ring {
		if s&(s-1) == 0 {
			left--
		}
		ring[s] = noRing
	}
	reach := make([]uint16, 1<<n)
	for at, step := range steps {
		var adj [exactGPUs]uint16
		for i := range n {
			for j := range n {
				if i != j && bw[i*n+j] >= step {
					adj[i] |= 1 << j
				}
			}
		}
		for s := 1; s < len(reach); s++ {
			rest := uint16(s & (s - 1))
			if rest == 0 {
				reach[s] = uint16(s)
				continue
			}
			var ends uint16
			for r := rest; r != 0; r &= r - 1 {
				v := bits.TrailingZeros16(r) & 15
				if reach[uint16(s)&^(1<<v)]&adj[v] != 0 {
					ends |= 1 << v
				}
			}
			reach[s] = ends
			if ring[s] == noRing && ends&adj[bits.TrailingZeros16(uint16(s))&15] != 0 {
				ring[s] = uint8(at)
				left--
			}
		}
		if left == 0 {
			break
		}
	}
	return ring
}

// local is the subgraph of a set over links of at least one bandwidth, with
// the members renumbered 0, 1, … in ascending order; at most 16 of them.
type local struct {
	n   int
	pos [exactGPUs]int
	adj [exactGPUs]uint16
}

func (m *matrix) local(s Mask, least int64) local {
	var l local
	for ; s != 0; s &= s - 1 {
		l.pos[l.n] = s.First()
		l.n++
	}
	for i := range l.n {
		for j := range l.n {
			if i != j && m.bw[l.pos[i]*m.n+l.pos[j]] >= least {
				l.adj[i] |= 1 << j
			}
		}
	}
	return l
}

// paths fills reach[s], for s over vertices 1…n-1, with the ends of paths from
// vertex 0 that visit exactly s.
func (l *local) paths(reach []uint16) {
	for s := 1; s < 1<<(l.n-1); s++ {
		var ends uint16
		for r := uint16(s); r != 0; r &= r - 1 {
			i := bits.TrailingZeros16(r)
			v := i + 1
			before := uint16(s) &^ (1 << i)
			if before == 0 && l.adj[v]&1 != 0 || before != 0 && reach[before]&l.adj[v] != 0 {
				ends |= 1 << v
			}
		}
		reach[s] = ends
	}
}

// sums fills most[at(s, v)], for s over vertices 1…n-1, with the greatest sum of links of a path from
// vertex 0 that visits exactly s and ends at v; noPath without such a path.
func (l *local) sums(m *matrix, most []int64) {
	for s := 1; s < 1<<(l.n-1); s++ {
		for r := uint16(s); r != 0; r &= r - 1 {
			v := bits.TrailingZeros16(r) + 1
			best := int64(noPath)
			before := uint16(s) &^ (1 << (v - 1))
			if before == 0 && l.adj[v]&1 != 0 {
				best = l.link(m, 0, v)
			}
			for u := before & (l.adj[v] >> 1); u != 0; u &= u - 1 {
				end := bits.TrailingZeros16(u) + 1
				if sum := most[l.at(before, end)]; sum != noPath {
					best = max(best, sum+l.link(m, end, v))
				}
			}
			most[l.at(uint16(s), v)] = best
		}
	}
}

// noPath is less than any sum of links.
const noPath = -1

func (l *local) at(s uint16, v int) int { return int(s)*l.n + v }

func (l *local) link(m *matrix, u, v int) int64 { return m.bw[l.pos[u]*m.n+l.pos[v]] }

// order returns the lexicographically smallest of the rings from vertex 0 with the greatest sum of links;
// nil if there is no ring. A vertex may come next when the best path from vertex 0 over all remaining
// vertices ends at it, because that path in reverse completes the ring.
func (l *local) order(m *matrix) []int {
	most := make([]int64, l.n<<(l.n-1))
	l.sums(m, most)
	out := make([]int, 1, l.n)
	at := 0
	for left := uint16(1)<<(l.n-1) - 1; left != 0; {
		next, best := 0, int64(noPath)
		for r := left & (l.adj[at] >> 1); r != 0; r &= r - 1 {
			v := bits.TrailingZeros16(r) + 1
			if sum := most[l.at(left, v)]; sum != noPath && sum+l.link(m, at, v) > best {
				next, best = v, sum+l.link(m, at, v)
			}
		}
		if next == 0 {
			return nil
		}
		out, at = append(out, next), next
		left &^= 1 << (at - 1)
	}
	for i, v := range out {
		out[i] = l.pos[v]
	}
	return out
}

// ringOrder returns the ring of s, from its lowest member, that has the given bottleneck and the greatest
// sum of links; of several the lexicographically smallest.
func (m *matrix) ringOrder(s Mask, bottleneck int64) []int {
	switch k := s.Len(); {
	case k < 3:
		return s.Positions()
	case k > exactGPUs:
		return m.searchRing(s, bottleneck)
	}
	l := m.local(s, bottleneck)
	return l.order(m)
}

// ringClass returns the class of the weakest edge of a ring: the least bandwidth, among equals the worst
// class.
func (m *matrix) ringClass(order []int) Class {
	var worst Class
	bw := int64(-1)
	if len(order) < 2 {
		return worst
	}
	for i, a := range order {
		p := a*m.n + order[(i+1)%len(order)]
		if c := m.class[p]; bw < 0 || m.bw[p] < bw || m.bw[p] == bw && c.rank() < worst.rank() {
			bw, worst = m.bw[p], c
		}
	}
	return worst
}
