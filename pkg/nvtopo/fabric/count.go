// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"cmp"
	"slices"
)

// units are the domains of one level inside a place that have slots, in the order of their
// nodes. Levels are counted from the place inwards: 1 is just inside it, levels that of the
// units.
type units struct {
	levels int
	id     []int
	size   []int32
	// shared is how many levels a unit has in common with the next one: 0 … levels-1.
	shared []int
	// fresh has, for each unit, bit l-1 for each level l whose domain has no members yet.
	fresh []uint8
	// outer is the unit's parent domain's capacity; 0 if the place is the parent.
	outer []int32
	// How many parents there are, and how many units the largest of them has.
	parents, largest int
}

func (p *problem) units(at place, depth int) *units {
	t := p.t
	dom := &t.domains[at.depth][at.at]
	u := &units{levels: depth - at.depth}
	first, last := t.of[depth][dom.First], t.of[depth][dom.End-1]
	for i := first; i <= last; i++ {
		if p.capacity[depth][i] == 0 {
			continue
		}
		u.id = append(u.id, i)
		u.size = append(u.size, int32(p.capacity[depth][i]))
		var fresh uint8
		for l, d := u.levels, i; l > 0; l-- {
			fresh |= uint8(p.fresh(at.depth+l, d)) << (l - 1)
			d = t.domains[at.depth+l][d].Parent
		}
		u.fresh = append(u.fresh, fresh)
		outer := 0
		if u.levels > 1 {
			outer = p.capacity[depth-1][t.domains[depth][i].Parent]
		}
		u.outer = append(u.outer, int32(outer))
	}
	u.shared = make([]int, len(u.id))
	for i := range len(u.id) - 1 {
		a, b := t.domains[depth][u.id[i]].First, t.domains[depth][u.id[i+1]].First
		for l := 1; l < u.levels && t.of[at.depth+l][a] == t.of[at.depth+l][b]; l++ {
			u.shared[i] = l
		}
	}
	here := 0
	for i := range u.id {
		here++
		if i == len(u.id)-1 || u.shared[i] < u.levels-1 {
			u.parents, u.largest, here = u.parents+1, max(u.largest, here), 0
		}
	}
	return u
}

// table is how many members units can hold that may open so many domains of each level.
//
// Which units of one parent are taken does not matter for the levels around it, so the parents
// are walked and not the units: of each, the largest so many.
type table struct {
	u       *units
	budget  []int // domains of each level that may be opened
	strides []int
	states  int     // codes: the domains that may still be opened, as one number
	open    []uint8 // by code: bit l-1 if a domain of level l may still be opened
	ends    []int   // by parent: the end of its units
	parent  []int   // by unit
	// sums are the most that so many new units hold, from a unit to the end of its parent, with
	// those that have members; by unit.
	sums [][]int32
	best []int32 // by parent from which on, then levels that are open there, then code
}

// capacities fills a table by walking the parents backwards. One is left out, or opens the
// domains around it that are not open yet.
func (u *units) capacities(budget []int, scratch []int32) *table {
	t := &table{u: u, states: 1, budget: slices.Clone(budget)}
	for _, b := range budget {
		t.strides = append(t.strides, t.states)
		t.states *= b + 1
	}
	t.open = make([]uint8, t.states)
	for code := range t.open {
		for l, s := range t.strides {
			if code/s%(budget[l]+1) > 0 {
				t.open[code] |= 1 << l
			}
		}
	}
	t.parent = make([]int, len(u.id))
	for i := range u.id {
		t.parent[i] = len(t.ends)
		if i == len(u.id)-1 || u.shared[i] < u.levels-1 {
			t.ends = append(t.ends, i+1)
		}
	}
	t.sum()
	size := (len(t.ends) + 1) * u.levels * t.states
	if cap(scratch) < size {
		scratch = make([]int32, size)
	}
	t.best = scratch[:size]
	clear(t.best[len(t.ends)*u.levels*t.states:])
	for p := len(t.ends) - 1; p > 0; p-- {
		first := t.ends[p-1]
		for open := range u.shared[first-1] + 1 {
			row := t.row(p, open)
			for code := range row {
				row[code] = t.most(first, open, code)
			}
		}
	}
	return t
}

// sum works out what each unit and those after it in its parent hold.
func (t *table) sum() {
	u := t.u
	t.sums = make([][]int32, len(u.id))
	buf := make([]int32, 0, len(u.id)*(min(u.largest, t.budget[u.levels-1])+1))
	none := []int32{0}
	for i := len(u.id) - 1; i >= 0; i-- {
		after := none
		if i+1 < len(u.id) && t.parent[i+1] == t.parent[i] {
			after = t.sums[i+1]
		}
		start := len(buf)
		buf = append(buf, after...)
		if u.fresh[i]>>(u.levels-1)&1 != 0 && len(after) <= t.budget[u.levels-1] {
			buf = append(buf, 0)
		}
		here := buf[start:]
		for r := len(here) - 1; r >= 0; r-- {
			switch {
			case u.fresh[i]>>(u.levels-1)&1 == 0:
				here[r] += u.size[i]
			case r > 0:
				here[r] = max(here[r], after[r-1]+u.size[i])
			}
		}
		t.sums[i] = here
	}
}

// most is how many members fit from a unit on where so many levels are open.
func (t *table) most(i, open, code int) int32 {
	u := t.u
	if i == len(u.id) {
		return 0
	}
	p, best := t.parent[i], int32(0)
	next := u.shared[t.ends[p]-1]
	if open < u.levels-1 { // the parent is not open
		best = t.row(p+1, min(open, next))[code]
		around := u.fresh[i] & (1<<(u.levels-1) - 1) >> open << open
		if around&^t.open[code] != 0 {
			return best
		}
		code -= t.delta(around)
	}
	rest, stride := t.row(p+1, next), t.strides[u.levels-1]
	for r := range min(len(t.sums[i]), code/stride+1) {
		best = max(best, t.sums[i][r]+rest[code-r*stride])
	}
	return best
}

// table is a table of the units inside a place with that budget at least. The last one is kept:
// the search asks for that by which the fewest domains were found.
func (p *problem) table(at place, u *units, budget []int) *table {
	if t := p.last; t != nil && p.lastAt == at && t.covers(budget) {
		return t
	}
	t := u.capacities(budget, p.scratch)
	p.last, p.lastAt, p.scratch = t, at, t.best
	return t
}

// covers reports whether a table has the codes of a budget.
func (t *table) covers(budget []int) bool {
	for l := range budget {
		if len(t.budget) != len(budget) || t.budget[l] < budget[l] {
			return false
		}
	}
	return true
}

// code is the state in which so many domains may be opened.
func (t *table) code(budget []int) (code int) {
	for l, b := range budget {
		code += b * t.strides[l]
	}
	return code
}

// price is what taking a unit opens while so many levels are open: the levels as bits, and
// what it takes from the code.
func (t *table) price(i, open int) (levels uint8, delta int) {
	levels = t.u.fresh[i] >> open << open
	return levels, t.delta(levels)
}

func (t *table) delta(levels uint8) (delta int) {
	for l, s := range t.strides {
		if levels>>l&1 != 0 {
			delta += s
		}
	}
	return delta
}

func (t *table) row(parent, open int) []int32 {
	at := (parent*t.u.levels + open) * t.states
	return t.best[at : at+t.states]
}

// maxTable bounds the steps to a table: some 20 ms. Only a gang of many hundred members on nodes
// that are all alone needs more.
const maxTable = 1 << 23

func (u *units) tooLarge(budget []int, most int) bool {
	size := (u.parents + 1) * u.levels * (u.largest + 1)
	for _, b := range budget {
		if size *= b + 1; size > most {
			return true
		}
	}
	return false
}

// CompareDomains orders numbers of domains by level, outermost level first, by criterion 3 of the
// objective: the fewest in all, and of equally many the fewest of the outermost level.
func CompareDomains(a, b []int) int {
	return cmp.Or(cmp.Compare(total(a), total(b)), slices.Compare(a, b))
}

func total(numbers []int) (sum int) {
	for _, n := range numbers {
		sum += n
	}
	return sum
}

// counting finds the numbers of new domains by level inside a place that hold the members.
type counting struct {
	p       *problem
	at      place
	units   []*units // by level
	least   []int    // how few of each level can do if it does not matter where they are
	best    []int    // the best so far; nil: none
	tooMuch bool     // some numbers were not tried
}

// opened returns the numbers of new domains by level, outermost first, that criterion 3 has for a
// place.
func (p *problem) opened(at place) ([]int, bool) {
	c := counting{p: p, at: at}
	for d := at.depth + 1; d <= p.t.Depth(); d++ {
		u := p.units(at, d)
		least, ok := u.atLeast(p.members)
		if !ok {
			return nil, false
		}
		c.units, c.least = append(c.units, u), append(c.least, least)
	}
	c.try(make([]int, 0, len(c.units)))
	switch {
	case c.tooMuch && c.best == nil:
		return p.openedGreedily(at)
	case c.tooMuch:
		p.unproven = true
	}
	return c.best, c.best != nil
}

// try goes through all numbers that begin with these and may be better than the best. Numbers
// come in order, so of equal ones the first is kept.
func (c *counting) try(begun []int) {
	l := len(begun)
	if l == len(c.units) {
		c.best = slices.Clone(begun)
		return
	}
	for n := c.first(begun); n <= c.limit(begun) && !c.tooMuch; n++ {
		c.try(append(begun, n))
		if l == len(c.units)-1 {
			return
		}
		if l == len(c.units)-2 {
			c.prepare(begun, n+1)
		}
	}
}

// prepare makes one table for all numbers that are still to be tried from n domains of the last
// level but one on, instead of one for each n.
func (c *counting) prepare(begun []int, n int) {
	most := c.limit(begun)
	if n > most || c.tooMuch {
		return
	}
	u := c.units[len(begun)+1]
	begun = append(slices.Clone(begun), n)
	budget := append(slices.Clone(begun), c.limit(begun))
	if budget[len(begun)-1] = most; !u.tooLarge(budget, c.p.most.table) {
		c.p.table(c.at, u, budget)
	}
}

// limit is the most domains of the next level with which numbers that begin with these can be
// better than the best.
func (c *counting) limit(begun []int) int {
	l := len(begun)
	limit := len(c.units[l].id)
	if c.best != nil {
		limit = min(limit, total(c.best)-1-total(begun)-total(c.least[l+1:]))
	}
	return limit
}

// first is the fewest domains of the next level with which the members fit into those that are
// given for the levels around it; more than the limit if it is not of interest.
func (c *counting) first(begun []int) int {
	p, l, limit := c.p, len(begun), c.limit(begun)
	n := c.least[l]
	switch {
	case limit < n:
	case p.looseSegments(c.at) && l >= p.demand.depth-c.at.depth:
		n = c.firstInSegments(begun, limit)
	case l > 0:
		n = p.fewestUnits(c.at, c.units[l], begun, n, limit)
	}
	if n < 0 || n <= limit && c.units[l].tooLarge(append(slices.Clone(begun), n), p.most.table) {
		c.tooMuch = true
	}
	return n
}

// atLeast is how few new units can hold the members if it does not matter where they are.
func (u *units) atLeast(members int) (int, bool) {
	var sizes []int32
	for i, s := range u.size {
		if u.fresh[i]>>(u.levels-1)&1 == 0 {
			members -= int(s)
		} else {
			sizes = append(sizes, s)
		}
	}
	slices.SortFunc(sizes, func(a, b int32) int { return cmp.Compare(b, a) })
	for n, s := range sizes {
		if members <= 0 {
			return n, true
		}
		members -= int(s)
	}
	return len(sizes), members <= 0
}

// fewestUnits is how few new units can hold the members if the levels outside them are given. It
// is more than the limit if so many cannot, and negative if that is too much work.
func (p *problem) fewestUnits(at place, u *units, outside []int, least, limit int) int {
	for step := 1; least <= limit; step *= 8 {
		most := min(least+step-1, limit) // seldom are more than the least needed
		budget := append(slices.Clone(outside), most)
		if u.tooLarge(budget, p.most.table) {
			return -1
		}
		t := p.table(at, u, budget)
		for n := least; n <= most; n++ {
			budget[len(outside)] = n
			if int(t.most(0, 0, t.code(budget))) >= p.members {
				return n
			}
		}
		least = most + 1
	}
	return least
}

// looseSegments reports whether required segments are of a level between the place and the
// innermost, so that the number of innermost domains is not known before the search.
func (p *problem) looseSegments(at place) bool {
	return p.demand.required && p.demand.depth > at.depth && p.demand.depth < p.t.Depth()
}

// firstInSegments is first for a level inside that of required segments: the number is raised
// until whole segments fit.
func (c *counting) firstInSegments(begun []int, limit int) int {
	l := len(begun)
	budget := slices.Clone(begun)
	for _, u := range c.units[l:] {
		budget = append(budget, len(u.id))
	}
	for budget[l] = c.least[l]; budget[l] <= limit; budget[l]++ {
		if c.units[len(c.units)-1].tooLarge(budget, c.p.most.table) {
			return -1
		}
		x := c.p.newSearch(c.at, budget, false)
		if x.find(x.start()).ok {
			break
		}
	}
	return budget[l]
}
