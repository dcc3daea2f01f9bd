// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"cmp"
	"slices"
)

// CompareDomains compares numbers of domains by level, outermost level first, by criterion 3 of the
// objective: the fewest in all, and at equal sums the fewest of the outermost level.
func CompareDomains(a, b []int) int {
	return cmp.Or(cmp.Compare(total(a), total(b)), slices.Compare(a, b))
}

// maxTrials bounds how many numbers better than the first are tried with required segments, each by a
// search of its own. On 4600 nodes in three levels some plans took seconds without a bound.
const maxTrials = 8

// counting finds the numbers of new domains by level inside a place that hold the members.
type counting struct {
	p       *problem
	at      place
	units   []*units // by level
	least   []int    // fewest of each level regardless of where they are
	best    []int    // the best so far; nil: none
	trials  int      // numbers better than the first that were tried with required segments
	tooMuch bool     // some numbers were not tried
}

// opened returns the numbers of new domains by level, outermost first, that criterion 3 gives for a
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

// try tries all numbers that begin with begun and may be better than the best. Numbers come in order, so
// of equal ones the first is kept.
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

// prepare makes one table for all numbers still to be tried from n domains of the last level but one on,
// instead of one for each n.
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

// limit returns the most domains of the next level with which numbers that begin with begun can be better
// than the best.
func (c *counting) limit(begun []int) int {
	l := len(begun)
	limit := len(c.units[l].id)
	if c.best != nil {
		limit = min(limit, total(c.best)-1-total(begun)-total(c.least[l+1:]))
	}
	return limit
}

// first returns the fewest domains of the next level with which the members fit into the numbers given
// for the levels around it; more than the limit if that would not be better.
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

// atLeast returns how few new units can hold the members regardless of where they are.
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

// fewestUnits returns how few new units can hold the members with the given numbers for the levels
// outside. It is more than the limit if that many cannot, and negative if computing it is too much work.
func (p *problem) fewestUnits(at place, u *units, outside []int, least, limit int) int {
	for step := 1; least <= limit; step *= 8 {
		most := min(least+step-1, limit) // rarely are more than the least needed
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

// firstInSegments is first for a level inside that of required segments: the number is raised until whole
// segments fit.
func (c *counting) firstInSegments(begun []int, limit int) int {
	l := len(begun)
	budget := slices.Clone(begun)
	for _, u := range c.units[l:] {
		budget = append(budget, len(u.id))
	}
	for budget[l] = c.least[l]; budget[l] <= limit; budget[l]++ {
		if c.best != nil {
			c.trials++
		}
		if c.trials > maxTrials || c.units[len(c.units)-1].tooLarge(budget, c.p.most.table) {
			return -1
		}
		x := c.p.newSearch(c.at, budget, false)
		if x.find(x.start()).ok {
			break
		}
	}
	return budget[l]
}
