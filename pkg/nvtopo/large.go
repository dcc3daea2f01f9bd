// SPDX-License-Identifier: Apache-2.0

package nvtopo

import (
	"cmp"
	"slices"
)

// searchBudget bounds each search over sets, in sets visited (a microsecond each; expensive steps use
// more), so that no graph read from outside can stop the scheduler. The graphs of real machines, whose
// GPUs are interchangeable in blocks, need a small part of it. A search that exhausts it returns the best
// set seen, which is deterministic but may not be best.
const searchBudget = 1 << 17

// manyKinds is a number of kinds of GPUs (distinguishable in one graph) that no real machine of that size
// reaches: its links are noise. Its searches get noiseBudget, so that a node that publishes noise does
// not take half a second of every scheduling cycle.
const (
	manyKinds   = 20
	noiseBudget = searchBudget >> 4
)

// budget bounds one search on this graph.
func (c *classTables) budget() int {
	if len(c.twins) > manyKinds {
		return noiseBudget
	}
	return searchBudget
}

// initLarge prepares a graph of more than 16 GPUs.
func (c *classTables) initLarge() {
	c.twins = c.twinClasses()
	c.gains = make([]int64, c.n*c.n)
	for i := range c.n {
		for j := range i {
			s := MaskOf(i, j)
			p := i*c.n + j
			v := groupValue(c.bw[p], c.numaCount(s), c.dist[p], c.rank[p])
			c.gains[p], c.gains[j*c.n+i] = v, v
			c.pairs = append(c.pairs, [2]uint8{uint8(j), uint8(i)})
		}
	}
	slices.SortFunc(c.pairs, func(a, b [2]uint8) int {
		if v := cmp.Compare(c.gains[int(b[0])*c.n+int(b[1])], c.gains[int(a[0])*c.n+int(a[1])]); v != 0 {
			return v
		}
		return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1]))
	})
}

// bestOf returns the best ring of k GPUs of the empty machine, searched on first use.
func (c *classTables) bestOf(k int) int64 {
	if k < 2 {
		return 0
	}
	if b := c.best[k].Load(); b != 0 {
		return b
	}
	if at, ok := c.bestStep(c.all, k, c.filter(c.variant(&Constraint{AllowMixedModels: true})), nil); ok {
		c.best[k].Store(c.steps[at])
	}
	return c.best[k].Load()
}

// twinClasses groups GPUs whose swap leaves the graph as it is: equal model,
// and equal links, NUMA grouping and distances to every third GPU. Being twins
// is transitive, so the groups are classes; they are ordered by lowest member.
func (m *matrix) twinClasses() []Mask {
	var classes []Mask
	for i := range m.n {
		at := slices.IndexFunc(classes, func(c Mask) bool { return m.twin(c.First(), i) })
		if at < 0 {
			classes = append(classes, 1<<i)
			continue
		}
		classes[at] |= 1 << i
	}
	return classes
}

func (m *matrix) twin(i, j int) bool {
	if !m.ok[0][i].Has(j) {
		return false
	}
	for x := range m.n {
		if x == i || x == j {
			continue
		}
		p, q := i*m.n+x, j*m.n+x
		if m.bw[p] != m.bw[q] || m.lat[p] != m.lat[q] || m.rank[p] != m.rank[q] || m.class[p] != m.class[q] ||
			m.dist[p] != m.dist[q] || (m.node[i] == m.node[x]) != (m.node[j] == m.node[x]) {
			return false
		}
	}
	return true
}

// residualBound returns a lower bound of R, used in its place above 16 GPUs: V_g is replaced by the value
// of a greedy packing. A group begins with the most valuable pair that is left and takes, until it has g
// members, the GPU with the greatest sum of pair values to them. Twins are interchangeable: the bound
// depends only on how many of each class are free.
func (c *classTables) residualBound(free Mask) int64 {
	var canonical Mask
	for _, class := range c.twins {
		canonical |= lowest(class, (free & class).Len())
	}
	var r int64
	for g := 2; g <= maxGroup; g++ {
		if c.weights.Group[g] <= 0 {
			continue
		}
		var packed int64
		left := canonical
		pairs := c.pairs
		for left.Len() >= g {
			for len(pairs) > 0 && (!left.Has(int(pairs[0][0])) || !left.Has(int(pairs[0][1]))) {
				pairs = pairs[1:]
			}
			t := c.grow(left, MaskOf(int(pairs[0][0]), int(pairs[0][1])), g)
			left &^= t
			pcie, _ := c.sums(t)
			packed += groupValue(c.steps[c.searchStep(t)], c.numaCount(t), c.numaDistance(t), pcie)
		}
		r += c.weights.weighted(g, packed)
	}
	return r
}

func (c *classTables) grow(left, t Mask, g int) Mask {
	for t.Len() < g {
		next, most := -1, int64(-1)
		for r := left &^ t; r != 0; r &= r - 1 {
			var sum int64
			row := r.First() * c.n
			for u := t; u != 0; u &= u - 1 {
				sum += c.gains[row+u.First()]
			}
			if sum > most {
				next, most = r.First(), sum
			}
		}
		t |= 1 << next
	}
	return t
}

// lowest returns the k lowest members of s.
func lowest(s Mask, k int) Mask {
	var out Mask
	for ; k > 0; k-- {
		out |= s & -s
		s &= s - 1
	}
	return out
}

// branchAndBound picks k GPUs from a graph above 16 GPUs: first the best ring step (feasibility is
// monotone in it), then the best locality at that step, then the best of all sets with both, compared by
// the residual's bound and the ties.
func (c *classTables) branchAndBound(free, avail Mask, k int, f filter, keep func(Mask) bool) Mask {
	at, ok := c.bestStep(avail, k, f, keep)
	if !ok {
		return 0
	}
	s := c.newSearch(avail, k, f, at, keep)
	s.stage = stageLocality
	s.run()
	s.stage, s.budget, s.free = stageResidual, c.budget(), free
	s.run()
	return s.best
}

// bestStep returns the first, that is fastest, step at which k GPUs of avail have a ring; for k = 1 any.
func (c *classTables) bestStep(avail Mask, k int, f filter, keep func(Mask) bool) (int, bool) {
	feasible := func(at int) bool {
		s := c.newSearch(avail, k, f, at, keep)
		s.run()
		return s.found
	}
	last := len(c.steps) - 1
	if !feasible(last) {
		return 0, false
	}
	lo, hi := 0, last
	for lo < hi {
		if mid := (lo + hi) / 2; feasible(mid) {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return lo, true
}

// stage is the goal of a search.
type stage uint8

const (
	stageAny      stage = iota // any set
	stageLocality              // the fewest NUMA nodes, then the least distance
	stageResidual              // the best set of that locality
)

// search walks the sets of k GPUs with a ring of at least one step. Of twins
// it takes the lowest first: a set with other twins is equal in every criterion
// and greater as a list.
type search struct {
	c        *classTables
	adj      []Mask
	classes  []Mask // available GPUs by twin class
	after    []Mask // after[i]: the GPUs of classes[i:]
	f        filter
	k        int
	maxNodes int
	keep     func(Mask) bool // nil: all
	free     Mask
	stage    stage
	budget   int

	found        bool
	best         Mask
	nodes, dist  int // of best
	ranked       bool
	left         int64
	pcie, pairBW int64
}

func (c *classTables) newSearch(avail Mask, k int, f filter, at int, keep func(Mask) bool) *search {
	s := &search{
		c: c, adj: c.adjacency(c.steps[at]), f: f, k: k, maxNodes: c.maxNodes(f, k), keep: keep, budget: c.budget(),
	}
	for _, class := range c.twins {
		for m := class & avail; m != 0; {
			part := m
			if keep != nil {
				// keep may distinguish NUMA nodes that the graph does not.
				part = c.onNodeOf(m)
			}
			s.classes = append(s.classes, part)
			m &^= part
		}
	}
	// Neighbours on one NUMA node first: the locality bound prunes early.
	slices.SortStableFunc(s.classes, func(a, b Mask) int { return cmp.Compare(c.node[a.First()], c.node[b.First()]) })
	s.after = make([]Mask, len(s.classes)+1)
	for i := len(s.classes) - 1; i >= 0; i-- {
		s.after[i] = s.after[i+1] | s.classes[i]
	}
	return s
}

// onNodeOf returns the part of s on the NUMA node of its lowest member.
func (m *matrix) onNodeOf(s Mask) Mask {
	var out Mask
	for i := range s.All() {
		if m.node[i] == m.node[s.First()] {
			out |= 1 << i
		}
	}
	return out
}

func (m *matrix) adjacency(least int64) []Mask {
	adj := make([]Mask, m.n)
	for i := range m.n {
		for j := range m.n {
			if i != j && m.bw[i*m.n+j] >= least {
				adj[i] |= 1 << j
			}
		}
	}
	return adj
}

// run searches all sets for the stage's goal.
func (s *search) run() {
	s.visit(0, 0, 0, 0)
	if s.c.searched != nil {
		s.c.searched(s.c.budget() - s.budget)
	}
}

// visit extends set by GPUs of classes[i:].
func (s *search) visit(i int, set Mask, nodes Mask, dist int) {
	if s.budget--; s.budget < 0 || s.found && s.stage == stageAny {
		return
	}
	if !s.within(nodes.Len(), dist) {
		return
	}
	n := set.Len()
	if n == s.k {
		s.leaf(set, nodes.Len(), dist)
		return
	}
	reachable := set | s.after[i]
	if n+s.after[i].Len() < s.k || i == len(s.classes) {
		return
	}
	if set != 0 {
		// A ring stays inside one component of the links that are fast enough.
		if reachable = component(set, s.adj, reachable); set&^reachable != 0 || reachable.Len() < s.k {
			return
		}
	}
	need := min(2, s.k-1)
	for r := set; r != 0; r &= r - 1 {
		v := r.First()
		if (reachable & s.f.ok[v] & s.adj[v]).Len() < need {
			return
		}
	}
	// The greatest number of this class first, so that ties find the
	// lexicographically smallest set early.
	members := s.classes[i]
	most := min(members.Len(), s.k-n)
	for take := most; take > 0; take-- {
		next, nextNodes, nextDist, ok := s.add(set, lowest(members, take), nodes, dist)
		if ok {
			s.visit(i+1, next, nextNodes, nextDist)
		}
	}
	s.visit(i+1, set, nodes, dist)
}

// component returns the part of within that adj joins to the lowest member of set.
func component(set Mask, adj []Mask, within Mask) Mask {
	in := set & -set
	for todo := in; todo != 0; {
		more := adj[todo.First()] & within &^ in
		in |= more
		todo = todo&(todo-1) | more
	}
	return in
}

// add returns set with more and its locality; false when the filter excludes a pair.
func (s *search) add(set, more, nodes Mask, dist int) (Mask, Mask, int, bool) {
	m := &s.c.matrix
	for r := more; r != 0; r &= r - 1 {
		v := r.First()
		if set&^s.f.ok[v] != 0 {
			return 0, 0, 0, false
		}
		for u := set; u != 0; u &= u - 1 {
			dist = max(dist, m.dist[v*m.n+u.First()])
		}
		set |= 1 << v
		nodes |= 1 << m.node[v]
	}
	return set, nodes, dist, true
}

// within reports whether a partial set's locality, which only grows, can still reach the stage's goal.
func (s *search) within(nodes, dist int) bool {
	switch s.stage {
	case stageAny:
		return nodes <= s.maxNodes
	case stageLocality:
		return nodes <= s.maxNodes && (!s.found || nodes < s.nodes || nodes == s.nodes && dist < s.dist)
	case stageResidual:
	}
	return nodes < s.nodes || nodes == s.nodes && dist <= s.dist
}

func (s *search) leaf(set Mask, nodes, dist int) {
	if s.k > 1 {
		ok, cost := hasRing(set, s.adj)
		if s.budget -= cost; !ok {
			return
		}
	}
	if s.keep != nil && !s.keep(set) {
		return
	}
	if s.stage != stageResidual {
		s.found, s.best, s.nodes, s.dist = true, set, nodes, dist
		return
	}
	s.budget -= s.c.n / 2 // the bound's cost beside a visit
	left := s.c.residualBound(s.free &^ set)
	pcie, pair := s.c.sums(set)
	if s.ranked {
		order := cmp.Or(cmp.Compare(s.left, left), cmp.Compare(pcie, s.pcie), cmp.Compare(s.pairBW, pair))
		if order > 0 || order == 0 && !set.LexLess(s.best) {
			return
		}
	}
	s.ranked, s.best, s.left, s.pcie, s.pairBW = true, set, left, pcie, pair
}
