// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"cmp"
	"slices"
)

// maxStates bounds the search for the best fit. Fabrics of some hundred racks need some
// thousand; when it is reached, the first solution of each remaining branch is taken, and the
// plan says that it is not exact.
const maxStates = 10_000

// leafShare is the members in one innermost domain, and the slots that it has.
type leafShare struct{ leaf, slots, members int }

// search finds the innermost domains to use inside a place, of which the numbers per level are
// given: criteria 5 to 7 over all choices, by dynamic programming from the first unit on.
type search struct {
	p         *problem
	u         *units
	t         table
	segment   int // level of segments; 0 if they do not matter inside the place
	memo      map[state]verdict
	free      []int32   // by unit: slots from there on that open no innermost domain
	lowest    []int32   // by unit: the smallest parent of it and those after it
	dislikes  [][]int64 // by unit, then members, if nodes are preferred
	truncated bool
}

// state is a moment of the walk over the units.
type state struct {
	unit, code int32
	need       int32 // members that have no place yet
	segments   int32 // whole segments still wanted
	part       int32 // members of a segment begun in the current domain of the segments' level
	open       int8  // levels open at the unit
}

// verdict is the best way to go on: take so many members into the unit, or none.
type verdict struct {
	cost cost
	take int32
	ok   bool
}

// search fills in what innermost domains a solution uses.
func (p *problem) search(s *solution) bool {
	x := p.newSearch(s.place, s.opened)
	v := x.find(x.start())
	if !v.ok {
		return false
	}
	s.cost, s.exact = v.cost, !x.truncated
	if x.u.levels == 1 {
		s.cost.parents = p.capacity[s.depth][s.at] * p.fresh(s.depth, s.at)
	}
	s.choices = x.read()
	if !p.preferences {
		p.fill(s.choices)
	}
	return true
}

func (p *problem) newSearch(at place, opened []int) *search {
	u := p.units(at, p.t.Depth())
	x := &search{p: p, u: u, t: u.capacities(opened, p.scratch), memo: map[state]verdict{}}
	p.scratch = x.t.best
	if p.size > 0 && p.segment > at.depth {
		x.segment = p.segment - at.depth
	}
	n := len(u.id)
	x.free, x.lowest = make([]int32, n+1), make([]int32, n+1)
	for i := n - 1; i >= 0; i-- {
		x.free[i], x.lowest[i] = x.free[i+1], u.outer[i]
		if i < n-1 {
			x.lowest[i] = min(u.outer[i], x.lowest[i+1])
		}
		if u.fresh[i]>>(u.levels-1)&1 == 0 {
			x.free[i] += u.size[i]
		}
	}
	if p.preferences {
		x.dislikes = make([][]int64, n)
		for i, leaf := range u.id {
			x.dislikes[i] = p.dislike(leaf, min(int(u.size[i]), p.members))
		}
	}
	return x
}

func (x *search) start() state {
	st := state{code: int32(x.t.states - 1), need: int32(x.p.members)}
	if x.segment > 0 {
		st.segments = int32(x.p.members / x.p.size)
	}
	return st
}

// find returns the best way on from a state. Equal ways go to the first units.
func (x *search) find(st state) verdict {
	if st.need <= 0 {
		return verdict{cost: cost{cuts: int(st.segments)}, ok: true}
	}
	i := int(st.unit)
	if i == len(x.u.id) || x.t.row(i, int(st.open))[st.code]+st.part < st.need {
		return verdict{}
	}
	if v, ok := x.memo[st]; ok {
		return v
	}
	floor := x.floor(st)
	best := x.take(st)
	if !best.ok || !x.settled(best.cost, floor) {
		if v := x.find(x.skipped(st)); v.ok && (!best.ok || v.cost.compare(best.cost) < 0) {
			v.take = 0
			best = v
		}
	}
	x.memo[st] = best
	return best
}

// take returns the best way on that takes some of the unit.
func (x *search) take(st state) (best verdict) {
	needs, delta := x.t.price(int(st.unit), int(st.open))
	if needs&^x.t.open[st.code] != 0 {
		return best
	}
	for take := min(x.u.size[st.unit], st.need); take > 0; take-- {
		v := x.find(x.taken(st, take, delta))
		if v.ok {
			v.cost, v.take = v.cost.plus(x.cost(st, take, needs)), take
			if !best.ok || v.cost.compare(best.cost) < 0 {
				best = v
			}
		}
		// Without preferred nodes all of it: how the members are divided is not decided here.
		if x.dislikes == nil || best.ok && x.full() {
			break
		}
	}
	return best
}

// full reports whether the search has gone on for long enough.
func (x *search) full() bool {
	if len(x.memo) < maxStates {
		return false
	}
	x.truncated = true
	return true
}

// settled reports whether there is no need to try without a unit.
func (x *search) settled(got, floor cost) bool {
	return x.full() || x.dislikes == nil && got.compare(floor) <= 0
}

// floor is a bound on what the rest costs: it fills what it uses, and opens the smallest
// parents. All new domains that may be opened are needed, as they are the fewest.
func (x *search) floor(st state) cost {
	f := cost{leaves: int(max(0, st.need-x.free[st.unit]))}
	if x.u.levels > 1 {
		l := x.u.levels - 2
		parents := int(st.code) % x.t.strides[l+1] / x.t.strides[l]
		f.parents = parents * int(x.lowest[st.unit])
	}
	return f
}

// cost is what taking a unit adds.
func (x *search) cost(st state, take int32, opens uint8) cost {
	var c cost
	u, i := x.u, st.unit
	if opens>>(u.levels-1)&1 != 0 {
		c.leaves = int(u.size[i])
	}
	if u.levels > 1 && opens>>(u.levels-2)&1 != 0 {
		c.parents = int(u.outer[i])
	}
	if x.dislikes != nil {
		c.disliked = x.dislikes[i][take]
	}
	return c
}

func (x *search) skipped(st state) state {
	next := st
	next.unit++
	next.open = min(st.open, int8(x.u.shared[st.unit]))
	if x.u.shared[st.unit] < x.segment {
		next.part = 0
	}
	return next
}

func (x *search) taken(st state, take int32, delta int) state {
	u := x.u
	next := state{
		unit: st.unit + 1, code: st.code - int32(delta), need: st.need - take, segments: st.segments,
		open: int8(min(u.levels-1, u.shared[st.unit])),
	}
	if x.segment == 0 {
		return next
	}
	if x.dislikes == nil {
		take = u.size[st.unit] // what is filled is decided later: whole segments first
	}
	size := int32(x.p.size)
	whole := (st.part + take) / size
	next.segments = max(0, st.segments-whole)
	if x.p.segmentRequired {
		next.need = st.need - whole*size
	}
	if u.shared[st.unit] >= x.segment {
		next.part = (st.part + take) % size
	}
	return next
}

// read walks the best way again.
func (x *search) read() (out []leafShare) {
	for st := x.start(); st.need > 0; {
		v := x.find(st)
		if v.take == 0 {
			st = x.skipped(st)
			continue
		}
		out = append(out, leafShare{x.u.id[st.unit], int(x.u.size[st.unit]), int(v.take)})
		_, delta := x.t.price(int(st.unit), int(st.open))
		st = x.taken(st, v.take, delta)
	}
	return out
}

// fill divides the members among the domains used: those that have members first, then the
// tightest. Whole segments come before the rest.
func (p *problem) fill(leaves []leafShare) {
	d := p.t.Depth()
	order := func(a, b leafShare) int {
		return cmp.Or(cmp.Compare(p.fresh(d, a.leaf), p.fresh(d, b.leaf)), cmp.Compare(a.slots, b.slots), cmp.Compare(a.leaf, b.leaf))
	}
	if p.size == 0 {
		left := p.members
		tightest := slices.Clone(leaves)
		slices.SortFunc(tightest, order)
		for i := range tightest {
			tightest[i].members = min(tightest[i].slots, left)
			left -= tightest[i].members
		}
		copyShares(leaves, tightest)
		return
	}
	groups := p.groups(leaves)
	left := p.members
	for i := range groups {
		groups[i].members = min(groups[i].slots, left) / p.size * p.size
		left -= groups[i].members
	}
	for i := range groups {
		more := min(groups[i].slots-groups[i].members, left)
		groups[i].members += more
		left -= more
	}
	for _, g := range groups {
		left := g.members
		slices.SortFunc(g.leaves, order)
		for i := range g.leaves {
			g.leaves[i].members = min(g.leaves[i].slots, left)
			left -= g.leaves[i].members
		}
		copyShares(leaves, g.leaves)
	}
}

func copyShares(to, from []leafShare) {
	for _, f := range from {
		for i := range to {
			if to[i].leaf == f.leaf {
				to[i].members = f.members
			}
		}
	}
}

// group is the innermost domains used of one domain of the segments' level.
type group struct {
	domain, slots, members int
	leaves                 []leafShare
}

// groups returns the tightest first.
func (p *problem) groups(leaves []leafShare) (out []group) {
	for _, l := range leaves {
		at := p.t.of[p.segment][p.t.domains[p.t.Depth()][l.leaf].First]
		if n := len(out) - 1; n < 0 || out[n].domain != at {
			out = append(out, group{domain: at})
		}
		g := &out[len(out)-1]
		g.slots += l.slots
		g.leaves = append(g.leaves, l)
	}
	slices.SortFunc(out, func(a, b group) int { return cmp.Or(cmp.Compare(a.slots, b.slots), cmp.Compare(a.domain, b.domain)) })
	return out
}

// looseSegments reports whether required segments are of a level between the place and the
// innermost, so that the number of innermost domains is not known before the search.
func (p *problem) looseSegments(at place) bool {
	return p.segmentRequired && p.segment > at.depth && p.segment < p.t.Depth()
}

// openedInSegments raises the numbers of the domains inside the segments' level, level by
// level, until whole segments fit.
func (p *problem) openedInSegments(at place, budget []int) ([]int, bool) {
	all := make([]*units, len(budget))
	for l := range budget {
		all[l] = p.units(at, at.depth+1+l)
	}
	for l := p.segment - at.depth; l < len(budget); l++ {
		for inner := l + 1; inner < len(budget); inner++ {
			budget[inner] = len(all[inner].id)
		}
		for budget[l], _ = all[l].atLeast(p.members); ; budget[l]++ {
			if all[len(all)-1].tooLarge(budget) {
				return p.openedGreedily(at)
			}
			x := p.newSearch(at, budget)
			if x.find(x.start()).ok {
				break
			}
			if budget[l] >= len(all[l].id) {
				return nil, false
			}
		}
	}
	return budget, true
}
