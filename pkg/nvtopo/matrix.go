// SPDX-License-Identifier: Apache-2.0

package nvtopo

import (
	"cmp"
	"slices"
)

// matrix holds the parts of a graph that the objective uses, by position and in flat arrays: the same for
// every graph of one class.
type matrix struct {
	n     int
	all   Mask
	bw    []int64 // n x n, kB/s
	lat   []int64 // n x n, ns
	rank  []int64 // n x n, PCIe ranks
	dist  []int   // n x n, NUMA distances
	class []Class // n x n

	steps   []int64 // distinct bandwidths, descending
	stepLat []int64 // latency of the links of a step, or -1 where they differ

	node  []uint8 // NUMA node of a position, numbered in order of appearance
	nodes int
	mixed bool // more than one model

	// ok[2*f+m][i] are the GPUs that may be in one set with GPU i: m = 1 where
	// models may be mixed, and f = number of classes of this graph below
	// min-link (0: no min-link).
	floors []int // distinct ranks of classes, ascending
	ok     [][]Mask

	minNodes []int // by k: fewest NUMA nodes that hold k GPUs of the empty machine
}

func newMatrix(g *Graph) matrix {
	n := g.Len()
	m := matrix{
		n: n, all: FullMask(n),
		bw: make([]int64, n*n), lat: make([]int64, n*n), rank: make([]int64, n*n), dist: make([]int, n*n), class: make([]Class, n*n),
		node: make([]uint8, n),
	}
	same := make([]Mask, n) // GPUs of the same model
	for i := range n {
		for j := range n {
			if g.GPUs[i].Model == g.GPUs[j].Model {
				same[i] |= 1 << j
			}
			if i == j {
				continue
			}
			l := g.Link(i, j)
			m.bw[i*n+j], m.lat[i*n+j], m.rank[i*n+j], m.class[i*n+j] = l.Bandwidth, l.Latency, l.PCIe.Rank(), l.Class
			m.dist[i*n+j] = g.gpuDistance(i, j)
			if j < i {
				m.steps = append(m.steps, l.Bandwidth)
				m.floors = append(m.floors, l.Class.rank())
			}
		}
		m.mixed = m.mixed || same[i] != m.all
	}
	slices.SortFunc(m.steps, func(a, b int64) int { return cmp.Compare(b, a) })
	m.steps = slices.Compact(m.steps)
	slices.Sort(m.floors)
	m.floors = slices.Compact(m.floors)
	m.fillLatencies()
	m.fillNodes(g)
	m.fillOK(same)
	return m
}

func (m *matrix) fillLatencies() {
	m.stepLat = make([]int64, len(m.steps))
	for s, step := range m.steps {
		first := true
		for p, bw := range m.bw {
			switch {
			case bw != step || p%(m.n+1) == 0:
			case first:
				m.stepLat[s], first = m.lat[p], false
			case m.stepLat[s] != m.lat[p]:
				m.stepLat[s] = -1
			}
		}
	}
}

// fillNodes numbers the NUMA nodes; a GPU whose node is unknown has its own.
func (m *matrix) fillNodes(g *Graph) {
	seen := map[int]uint8{}
	var sizes []int
	for i := range m.n {
		id := g.GPUs[i].NUMANode
		node, ok := seen[id]
		if !ok || id == UnknownNUMA {
			node = uint8(len(sizes))
			seen[id] = node
			sizes = append(sizes, 0)
		}
		m.node[i] = node
		sizes[node]++
	}
	m.nodes = len(sizes)
	slices.SortFunc(sizes, func(a, b int) int { return b - a })
	m.minNodes = make([]int, 1, m.n+1)
	for used, size := range sizes {
		for range size {
			m.minNodes = append(m.minNodes, used+1)
		}
	}
}

func (m *matrix) fillOK(same []Mask) {
	m.ok = make([][]Mask, 2*(len(m.floors)+1))
	backing := make([]Mask, len(m.ok)*m.n)
	for v := range m.ok {
		ok := backing[v*m.n : (v+1)*m.n]
		for i := range m.n {
			for j := range m.n {
				if i != j && v/2 > 0 && (v/2 == len(m.floors) || m.class[i*m.n+j].rank() < m.floors[v/2]) {
					continue
				}
				if v%2 == 0 && !same[i].Has(j) {
					continue
				}
				ok[i] |= 1 << j
			}
		}
		m.ok[v] = ok
	}
}

// numaCount returns the number of NUMA nodes of a set.
func (m *matrix) numaCount(s Mask) int {
	var nodes Mask
	for ; s != 0; s &= s - 1 {
		nodes |= 1 << m.node[s.First()]
	}
	return nodes.Len()
}

// numaDistance returns the greatest NUMA distance between two GPUs of a set.
func (m *matrix) numaDistance(s Mask) int {
	d := 0
	for ; s != 0; s &= s - 1 {
		row := s.First() * m.n
		for r := s & (s - 1); r != 0; r &= r - 1 {
			d = max(d, m.dist[row+r.First()])
		}
	}
	return d
}

// sums returns the sum of the PCIe ranks and of the bandwidths of all pairs.
func (m *matrix) sums(s Mask) (pcie, pair int64) {
	for ; s != 0; s &= s - 1 {
		row := s.First() * m.n
		for r := s & (s - 1); r != 0; r &= r - 1 {
			j := r.First()
			pcie += m.rank[row+j]
			pair += m.bw[row+j]
		}
	}
	return pcie, pair
}

// latencyAt returns the greatest latency of the links of s with bandwidth steps[at].
func (m *matrix) latencyAt(s Mask, at int) int64 {
	if l := m.stepLat[at]; l >= 0 {
		return l
	}
	var worst int64
	for ; s != 0; s &= s - 1 {
		row := s.First() * m.n
		for r := s & (s - 1); r != 0; r &= r - 1 {
			if p := row + r.First(); m.bw[p] == m.steps[at] {
				worst = max(worst, m.lat[p])
			}
		}
	}
	return worst
}

// variant reduces a constraint to a number, so that constraints that exclude
// the same sets of this matrix share one table: (3 policies) x ok. MinBandwidth
// is not part of it: the ring is the first criterion, so checking the winner is
// enough.
func (m *matrix) variant(c *Constraint) int {
	if c.Policy <= PolicyNone && !c.AllowMixedModels && c.MinLink == (Class{}) {
		return 0
	}
	return m.strictVariant(c)
}

func (m *matrix) strictVariant(c *Constraint) int {
	v := 0
	if rank := c.MinLink.rank(); rank > 0 {
		for _, floor := range m.floors {
			if floor < rank {
				v += 2
			}
		}
	}
	if c.AllowMixedModels && m.mixed {
		v++
	}
	if c.Policy > PolicyNone && m.nodes > 1 {
		v += len(m.ok) * int(min(c.Policy, PolicySingleNUMANode)-PolicyNone) // unknown ones: the strictest
	}
	return v
}

// variants returns the number of values of variant.
func (m *matrix) variants() int { return 3 * len(m.ok) }

// filter is the decoded form of a variant.
type filter struct {
	ok     []Mask
	policy Policy // PolicyNone where the policy excludes nothing
}

func (m *matrix) filter(variant int) filter {
	return filter{ok: m.ok[variant%len(m.ok)], policy: PolicyNone + Policy(variant/len(m.ok))}
}

// maxNodes returns the most NUMA nodes that k GPUs may span under the filter.
func (m *matrix) maxNodes(f filter, k int) int {
	switch f.policy {
	case PolicyRestricted:
		return m.minNodes[min(k, m.n)]
	case PolicySingleNUMANode:
		return 1
	case PolicyBestEffort, PolicyNone:
	}
	return m.nodes
}

// passes reports whether a set of k satisfies the filter.
func (m *matrix) passes(f filter, s Mask, k int) bool {
	for r := s; r != 0; r &= r - 1 {
		if s&^f.ok[r.First()] != 0 {
			return false
		}
	}
	return f.policy == PolicyNone || m.numaCount(s) <= m.maxNodes(f, k)
}
