// SPDX-License-Identifier: Apache-2.0

package fabric

// maxStates bounds the search for the best fit. Fabrics of some hundred racks need some thousand states;
// when it is reached, the first solution of each remaining branch is taken, and the plan is marked as not
// exact.
const maxStates = 10_000

// leafShare is one innermost domain with its slots and the members it gets.
type leafShare struct{ leaf, slots, members int }

// search chooses the innermost domains inside a place, given how many of each level may be opened:
// criteria 5 to 7 over all choices, by dynamic programming from the first unit on.
//
// Without preferred nodes a unit is taken with all its slots, and fill divides the members later; with
// them it is taken with the members it gets.
type search struct {
	p         *problem
	u         *units
	t         *table
	code      int // code of the walk's first state
	segment   int // level of segments; 0 if they do not matter inside the place
	homes     [][]int32
	after     []homeless
	memo      map[state]verdict // shared with searches with other budgets
	number    uint16
	states    int       // states of this search
	free      []int32   // by unit: slots from the unit on that open no innermost domain
	lowest    []int32   // by unit: the smallest parent from the unit on
	dislikes  [][]int64 // by unit, then members, if nodes are preferred
	truncated bool
	aborted   bool
}

// homeless is the segments with members in the domains after a unit's, and the members they lack.
type homeless struct{ segments, members int32 }

// state is a position of the walk over the units.
type state struct {
	unit, code int32
	need       int32 // members not placed yet
	segments   int32 // whole segments still to be placed that may be anywhere
	// part is the members of a segment begun in the current domain of the segments' level; negative for
	// those still missing of the segments that have members there.
	part   int32
	open   int8 // levels open at the unit
	search uint16
}

// verdict is the best continuation: the members to take into the unit, none, or a stop.
type verdict struct {
	cost cost
	take int32
	ok   bool
}

const stop = -1

func (v verdict) better(o verdict) bool { return v.ok && (!o.ok || v.cost.compare(o.cost) < 0) }

// search sets the innermost domains that a solution uses; false if there are none.
func (p *problem) search(s *solution, opened []int) bool {
	x := p.newSearch(s.place, opened, p.preferences)
	v := x.find(x.start())
	s.exact = s.exact && !x.truncated
	if x.aborted { // a plan without regard to the preferences is better than none
		x = p.newSearch(s.place, opened, false)
		v = x.find(x.start())
		s.exact = false
	}
	if !v.ok {
		return false
	}
	s.cost = v.cost
	if x.u.levels == 1 {
		s.cost.parents = p.capacity[s.depth][s.at] * p.fresh(s.depth, s.at)
	}
	s.choices = x.read()
	if x.dislikes != nil {
		return true
	}
	p.fill(s.choices)
	if p.preferences {
		for _, c := range s.choices {
			s.cost.disliked += p.dislike(c.leaf, c.members)[c.members]
		}
	}
	return true
}

func (p *problem) newSearch(at place, opened []int, preferences bool) *search {
	u := p.units(at, p.t.Depth())
	x := &search{p: p, u: u, t: p.table(at, u, opened)}
	x.memo, x.number = p.work.search()
	x.code = x.t.code(opened)
	n := len(u.id)
	x.free, x.lowest = make([]int32, n+1), make([]int32, n+1)
	x.homes, x.after = make([][]int32, n+1), make([]homeless, n+1)
	if p.demand.size > 0 && p.demand.depth > at.depth {
		x.segment = p.demand.depth - at.depth
		x.readHomes()
	}
	for i := n - 1; i >= 0; i-- {
		x.free[i], x.lowest[i] = x.free[i+1], u.outer[i]
		if i < n-1 {
			x.lowest[i] = min(u.outer[i], x.lowest[i+1])
		}
		if u.fresh[i]>>(u.levels-1)&1 == 0 {
			x.free[i] += u.size[i]
		}
	}
	if preferences {
		x.dislikes = make([][]int64, n)
		for i, leaf := range u.id {
			x.dislikes[i] = p.dislike(leaf, min(int(u.size[i]), p.members))
		}
	}
	return x
}

// readHomes sets for each unit the segments that have members in its domain.
func (x *search) readHomes() {
	u, t := x.u, x.p.t
	for i := len(u.id) - 1; i >= 0; i-- {
		first := t.domains[t.Depth()][u.id[i]].First
		x.homes[i] = x.p.demand.homes[t.of[x.segment+t.Depth()-u.levels][first]]
		if i == len(u.id)-1 {
			continue
		}
		x.after[i] = x.after[i+1]
		if u.shared[i] < x.segment {
			x.after[i].segments += int32(len(x.homes[i+1]))
			x.after[i].members += last(x.homes[i+1])
		}
	}
}

// exactly reports whether the members taken must make up exactly whole segments.
func (x *search) exactly() bool { return x.p.demand.required && x.segment > 0 && x.dislikes != nil }

// filled reports whether only whole segments of the slots taken can be used.
func (x *search) filled() bool { return x.p.demand.required && x.segment > 0 && x.dislikes == nil }

func (x *search) start() state {
	st := state{search: x.number, code: int32(x.code), need: int32(x.p.members)}
	if x.segment > 0 {
		st.segments = int32(x.p.demand.free)
		st.part = -last(x.homes[0])
	}
	return st
}

// find returns the best continuation from a state. Of equal ones it returns the one with the first units.
func (x *search) find(st state) verdict {
	i := int(st.unit)
	end := verdict{take: stop}
	if st.need <= 0 {
		end = x.end(st)
		if end.cost.cuts == 0 || x.free[i] == 0 || x.dislikes != nil {
			return end
		}
	}
	begun := int32(0) // members that are not needed any more once their segment is whole
	if x.filled() {
		begun = max(0, st.part)
	}
	if i == len(x.u.id) || x.aborted || x.t.most(i, int(st.open), int(st.code))+begun < st.need {
		return end
	}
	if v, ok := x.memo[st]; ok {
		return v
	}
	floor := x.floor(st, begun)
	best := x.take(st)
	if !best.ok || !x.settled(best.cost, floor) {
		if v := x.skip(st); v.better(best) {
			best = v
		}
	}
	if end.ok && !best.better(end) {
		best = end
	}
	x.memo[st] = best
	x.states++
	return best
}

// end returns the verdict of taking nothing more.
func (x *search) end(st state) verdict {
	if x.segment == 0 {
		return verdict{take: stop, ok: true}
	}
	cuts, ok := x.leave(int(st.unit), st.part)
	cuts += int(st.segments + x.after[st.unit].segments)
	if x.p.demand.required {
		cuts = 0
	}
	return verdict{cost: cost{cuts: cuts}, take: stop, ok: ok}
}

// leave returns the segments that are cut if a unit's domain of the segments' level gets no more members;
// not ok if they must not be cut.
func (x *search) leave(unit int, part int32) (cuts int, ok bool) {
	switch {
	case x.exactly():
		return 0, part == 0
	case x.filled():
		return 0, part >= 0
	}
	return unmet(x.homes[unit], max(0, -part)), true
}

// take returns the best continuation that takes members into the unit.
func (x *search) take(st state) (best verdict) {
	i := st.unit
	needs, delta := x.t.price(int(i), int(st.open))
	if needs&^x.t.open[st.code] != 0 {
		return best
	}
	most := x.u.size[i]
	if x.dislikes != nil {
		most = min(most, st.need)
	}
	for take := most; take > 0; take-- {
		if v := x.goOn(x.taken(st, take, delta), st); v.ok {
			v.cost, v.take = v.cost.plus(x.cost(st, take, needs)), take
			if v.better(best) {
				best = v
			}
		}
		if x.dislikes == nil || best.ok && x.full() {
			break
		}
	}
	return best
}

// skip returns the best continuation that takes nothing of the unit.
func (x *search) skip(st state) verdict {
	next := st
	next.unit++
	next.open = min(st.open, int8(x.u.shared[st.unit]))
	v := x.goOn(next, st)
	v.take = 0
	return v
}

// goOn is find for the next unit, whose state still has the part of the domain before. At that unit a
// domain of the segments' level may end.
func (x *search) goOn(next, st state) verdict {
	if x.segment == 0 || x.u.shared[st.unit] >= x.segment {
		return x.find(next)
	}
	cuts, ok := x.leave(int(st.unit), next.part)
	if !ok {
		return verdict{}
	}
	next.part = -last(x.homes[next.unit])
	v := x.find(next)
	v.cost.cuts += cuts
	return v
}

// full reports whether the search has reached its bound of states.
func (x *search) full() bool {
	if x.states < x.p.most.states {
		return false
	}
	x.truncated = true
	x.aborted = x.aborted || x.exactly()
	return true
}

// settled reports whether the continuation without a unit need not be tried.
func (x *search) settled(got, floor cost) bool {
	return x.full() || x.dislikes == nil && got.compare(floor) <= 0
}

// floor returns a lower bound of the remaining cost: it fills the domains used and opens the smallest
// parents. All new domains that may be opened are needed, as they are the fewest.
func (x *search) floor(st state, begun int32) cost {
	f := cost{leaves: int(max(0, st.need-begun-x.free[st.unit]))}
	if x.u.levels > 1 {
		l := x.u.levels - 2
		parents := int(st.code) % x.t.strides[l+1] / x.t.strides[l]
		f.parents = parents * int(x.lowest[st.unit])
	}
	return f
}

// cost returns the cost that taking a unit adds.
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

func (x *search) taken(st state, take int32, delta int) state {
	u := x.u
	next := st
	next.unit++
	next.code -= int32(delta)
	next.open = int8(min(u.levels-1, u.shared[st.unit]))
	if x.segment == 0 {
		next.need = max(0, st.need-take)
		return next
	}
	size := int32(x.p.demand.size)
	next.part = st.part + take
	whole := max(0, next.part) / size
	next.part -= whole * size
	next.segments = max(0, st.segments-whole)
	if x.filled() {
		take = min(take, max(0, -st.part)) + whole*size
	}
	// Slots for other segments do not help those that have a home further on.
	forced := int32(0)
	if x.p.demand.required {
		forced = max(0, -next.part) + x.after[st.unit].members
	}
	next.need = max(forced, st.need-take)
	return next
}

// read returns the domains of the best solution from the memo.
func (x *search) read() (out []leafShare) {
	for st := x.start(); ; {
		v := x.find(st)
		if v.take == stop {
			return out
		}
		i := st.unit
		next := st
		if v.take == 0 {
			next.unit++
			next.open = min(st.open, int8(x.u.shared[i]))
		} else {
			out = append(out, leafShare{x.u.id[i], int(x.u.size[i]), int(v.take)})
			_, delta := x.t.price(int(i), int(st.open))
			next = x.taken(st, v.take, delta)
		}
		if x.segment > 0 && x.u.shared[i] < x.segment {
			next.part = -last(x.homes[next.unit])
		}
		st = next
	}
}
