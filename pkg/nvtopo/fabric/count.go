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
	return u
}

// table is how many members units can hold that may open so many domains of each level.
type table struct {
	u       *units
	strides []int
	states  int     // codes: the domains that may still be opened, as one number
	open    []uint8 // by code: bit l-1 if a domain of level l may still be opened
	best    []int32 // by unit from which on, then levels that are open there, then code
}

// capacities fills a table by walking the units backwards. A unit is left out or taken whole;
// taking it opens the domains around it that are not open yet.
func (u *units) capacities(budget []int, scratch []int32) table {
	t := table{u: u, states: 1}
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
	n, m := len(u.id), u.levels
	size := (n + 1) * m * t.states
	t.best = slices.Grow(scratch[:0], size)[:size]
	clear(t.best[n*m*t.states:])
	for i := n - 1; i >= 0; i-- {
		for o := range m {
			row := t.row(i, o)
			skip, take := t.row(i+1, min(o, u.shared[i])), t.row(i+1, min(m-1, u.shared[i]))
			needs, delta := t.price(i, o)
			for code := range row {
				row[code] = skip[code]
				if needs&^t.open[code] == 0 {
					row[code] = max(row[code], u.size[i]+take[code-delta])
				}
			}
		}
	}
	return t
}

// price is what taking a unit opens while so many levels are open: the levels as bits, and
// what it takes from the code.
func (t *table) price(i, open int) (levels uint8, delta int) {
	levels = t.u.fresh[i] >> open << open
	for l, s := range t.strides {
		if levels>>l&1 != 0 {
			delta += s
		}
	}
	return levels, delta
}

func (t *table) row(i, open int) []int32 {
	at := (i*t.u.levels + open) * t.states
	return t.best[at : at+t.states]
}

// maxTable bounds a table: 32 MiB, some 20 ms. Only a gang of many hundred members in a fabric
// of small domains, or of nodes that are all alone, needs more.
const maxTable = 1 << 23

func (u *units) tooLarge(budget []int) bool {
	size := (len(u.id) + 1) * u.levels
	for _, b := range budget {
		if size *= b + 1; size > maxTable {
			return true
		}
	}
	return false
}

// opened returns the fewest new domains of each level inside a place that hold the members,
// outermost first.
func (p *problem) opened(at place) ([]int, bool) {
	var budget []int
	for d := at.depth + 1; d <= p.t.Depth(); d++ {
		u := p.units(at, d)
		least, ok := u.atLeast(p.members)
		if !ok {
			return nil, false
		}
		if u.levels > 1 {
			least = p.fewestUnits(u, budget, least)
		}
		budget = append(budget, least)
		if least < 0 || u.tooLarge(budget) {
			return p.openedGreedily(at)
		}
	}
	if p.looseSegments(at) {
		return p.openedInSegments(at, budget)
	}
	return budget, true
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

// fewestUnits is how few new units can hold the members if the levels outside them are given,
// and negative if that is too much work. There is an answer, since the levels outside are
// enough.
func (p *problem) fewestUnits(u *units, outside []int, least int) int {
	for most := max(least, 1); ; most = min(2*most, len(u.id)) {
		budget := append(slices.Clone(outside), most)
		if u.tooLarge(budget) {
			return -1
		}
		t := u.capacities(budget, p.scratch)
		p.scratch = t.best
		whole, inner := t.row(0, 0), t.strides[len(t.strides)-1]
		for n := least; n <= most; n++ {
			if int(whole[inner*n+inner-1]) >= p.members {
				return n
			}
		}
		least = most + 1
		if most == len(u.id) {
			return most
		}
	}
}
