// SPDX-License-Identifier: Apache-2.0

package fabric

import "slices"

// units are the domains of one level inside a place that have slots, in the order of their nodes. Levels
// are numbered from the place inwards: 1 is just inside it, levels is that of the units.
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

// table holds how many members the units can take for each number of domains of each level that may be
// opened.
//
// The choice of units within one parent does not matter for the levels around it, so the walk goes over
// parents and not units, and takes the largest units of each.
type table struct {
	u       *units
	budget  []int // domains of each level that may be opened
	strides []int
	states  int     // codes: the domains that may still be opened, as one number
	open    []uint8 // by code: bit l-1 if a domain of level l may still be opened
	ends    []int   // by parent: the end of its units
	parent  []int   // by unit
	// sums are the most members in a number of new units, from a unit to the end of its parent, together
	// with the units that have members; by unit.
	sums [][]int32
	best []int32 // by parent from which on, then levels that are open there, then code
}

// capacities fills a table by walking the parents backwards. A parent is either left out, or opens the
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

// sum computes the members that each unit and those after it in its parent can take.
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

// most returns how many members fit from a unit on with the given number of levels open.
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

// table returns a table of the units inside a place with at least that budget. The workspace keeps the
// last one: the search uses the table with which the fewest domains were found.
func (p *problem) table(at place, u *units, budget []int) *table {
	w := p.work
	if w.lastProblem == p && w.lastPlace == at && w.lastTable.covers(budget) {
		return w.lastTable
	}
	w.lastTable = u.capacities(budget, w.table)
	w.lastProblem, w.lastPlace, w.table = p, at, w.lastTable.best
	return w.lastTable
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

// code encodes a budget of domains as one state.
func (t *table) code(budget []int) (code int) {
	for l, b := range budget {
		code += b * t.strides[l]
	}
	return code
}

// price returns the levels that taking a unit opens, as bits, while the given number of levels is open,
// and the amount by which the code decreases.
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

// maxTable bounds the steps of building a table: some 20 ms. Only a gang of many hundred members on nodes
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
