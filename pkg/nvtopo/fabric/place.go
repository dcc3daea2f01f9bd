// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"cmp"
	"slices"

	"github.com/nvtopo/nvtopo/pkg/nvtopo/nodeindex"
)

// worstBand is the band in which whatever fits counts.
const worstBand = nodeindex.Bands - 1

// Place plans a gang by the published objective (docs/decisions/0019-gang-objective.md). The
// error is an *UnplaceableError if there is no room now; any other says what is wrong with
// the request. A gang whose members are all bound is judged as it is.
func Place(t *Tree, r *Request) (*Plan, error) {
	w, err := r.check(t)
	if err != nil {
		return nil, err
	}
	g := newGang(t, r, w)
	switch {
	case g.missing == 0:
		return g.finish(&outcome{exact: true, fewest: make([]int, t.Depth()+1)}), nil
	case w.segment >= 0 && g.missing < len(r.Members):
		return g.placeSegments()
	case w.spread >= 0:
		return g.placeSpread()
	case g.shapes > 1:
		return g.placeMixed()
	}
	p := g.problem(g.firstShape, g.missing)
	s, ok := p.solve()
	if !ok {
		return nil, g.unplaceable("")
	}
	return g.finish(g.outcomeOf(s)), nil
}

// problem is members of one shape to be put into one part of the tree.
type problem struct {
	t        *Tree
	supply   []Supply
	members  int
	required int   // depth of the domain that must have them all
	hold     []int // nodes that this domain must have too
	// occupied are the domains that have members already, by depth; nil for none. Going there
	// opens no new domain.
	occupied [][]bool
	scope    place // the part of the tree

	segment         int // depth of segments; -1 for none
	size            int // of a segment
	segmentRequired bool
	preferences     bool // some node is preferred over others

	band     int
	slots    []int   // by node, in that band
	capacity [][]int // by depth: what the domains can hold
	scratch  []int32
	// unproven says that somewhere the fewest domains were too much work to find.
	unproven bool
}

// place is a domain, or a node where depth is one more than the tree's.
type place struct{ depth, at int }

// solution is where the members of a problem go.
type solution struct {
	place   // the smallest domain that has them and what is held
	opened  []int
	band    int
	cost    cost
	nodes   []share
	lost    int64
	exact   bool
	choices []leafShare // the innermost domains used; nil for a single node
}

// share is a number of members on a node.
type share struct{ node, members int }

// solve finds the level and the fewest domains with all bands, and then the best band in which
// these stay the same: they come first in the objective, and fewer slots never need fewer
// domains.
func (p *problem) solve() (*solution, bool) {
	p.load(worstBand)
	target, ok := p.fewest()
	if !ok {
		return nil, false
	}
	for band := range worstBand {
		changed := p.load(band)
		if band == 0 && !changed {
			return p.choose(target), true
		}
		if !changed {
			continue
		}
		got, ok := p.fewest()
		if ok && got.place.depth == target.place.depth && slices.Equal(got.opened, target.opened) {
			return p.choose(got), true
		}
	}
	p.load(worstBand)
	return p.choose(target), true
}

// load counts slots in a band. It reports whether they are others than those loaded before.
func (p *problem) load(band int) bool {
	t := p.t
	dom := p.nodes()
	changed := p.slots == nil
	if changed {
		p.slots = make([]int, t.Len())
		p.capacity = make([][]int, t.Depth()+1)
		for d := range p.capacity {
			p.capacity[d] = make([]int, len(t.domains[d]))
		}
	}
	for n := dom.First; n < dom.End; n++ {
		s := 0
		if t.closed == nil || !t.closed[n] {
			s = p.supply[n].count(band)
		}
		changed = changed || s != p.slots[n]
		p.slots[n] = s
	}
	p.band = band
	if changed {
		p.sum(dom)
	}
	return changed
}

// nodes is the range of nodes of the scope.
func (p *problem) nodes() Domain {
	if p.scope.depth > p.t.Depth() {
		return Domain{First: p.scope.at, End: p.scope.at + 1}
	}
	return p.t.domains[p.scope.depth][p.scope.at]
}

// sum adds the slots up. A domain of the segments' level holds whole segments only, if these
// are required.
func (p *problem) sum(dom Domain) {
	t := p.t
	for d := t.Depth(); d >= 0; d-- {
		clear(p.capacity[d])
		if d == t.Depth() {
			for n := dom.First; n < dom.End; n++ {
				p.capacity[d][t.of[d][n]] += p.slots[n]
			}
		} else {
			for i := range t.domains[d+1] {
				p.capacity[d][t.domains[d+1][i].Parent] += p.capacity[d+1][i]
			}
		}
		if p.segmentRequired && d == p.segment {
			for i, c := range p.capacity[d] {
				p.capacity[d][i] = c / p.size * p.size
			}
		}
	}
}

// shortlist is the places of the innermost level that can hold the members, with the fewest
// domains inside them.
type shortlist struct {
	place  place // the first of them; of all the same depth
	all    []int // its numbers
	opened []int // new domains by level below, outermost first
}

// fewest is criteria 2 and 3: the level, and the domains per level inside.
func (p *problem) fewest() (shortlist, bool) {
	for d := p.t.Depth() + 1; d >= max(p.required, p.scope.depth); d-- {
		var list shortlist
		all := p.holding(d)
		if d >= p.t.Depth() && len(all) > 0 {
			return shortlist{place: place{d, all[0]}, all: all}, true // nothing is inside
		}
		for _, at := range all {
			opened, ok := p.opened(place{d, at})
			if !ok {
				continue
			}
			c := -1
			if list.all != nil {
				c = slices.Compare(opened, list.opened)
			}
			switch {
			case c < 0:
				list = shortlist{place: place{d, at}, all: []int{at}, opened: opened}
			case c == 0:
				list.all = append(list.all, at)
			}
		}
		if list.all != nil {
			return list, true
		}
	}
	return shortlist{}, false
}

// holding returns the places of a depth that have room for all members and have the nodes that
// are held.
func (p *problem) holding(depth int) (out []int) {
	t, dom := p.t, p.nodes()
	if depth > t.Depth() {
		return p.holdingNodes(dom)
	}
	if dom.First == dom.End {
		return nil
	}
	for i := t.of[depth][dom.First]; i <= t.of[depth][dom.End-1]; i++ {
		d := &t.domains[depth][i]
		named := d.Name != "" || depth == 0 || depth == p.scope.depth && p.required < depth
		if p.capacity[depth][i] >= p.members && named && p.holds(d.First, d.End) {
			out = append(out, i)
		}
	}
	return out
}

// holdingNodes is holding for single nodes. One that is alone meets no required level.
func (p *problem) holdingNodes(dom Domain) (out []int) {
	t := p.t
	named := p.required > 0 && p.required <= t.Depth()
	for n := dom.First; n < dom.End; n++ {
		if p.slots[n] < p.members || !p.holds(n, n+1) || named && t.domains[p.required][t.of[p.required][n]].Name == "" {
			continue
		}
		out = append(out, n)
	}
	return out
}

func (p *problem) holds(first, end int) bool {
	return !slices.ContainsFunc(p.hold, func(n int) bool { return n < first || n >= end })
}

// fresh is 1 for a domain without members, 0 for one that has some.
func (p *problem) fresh(depth, at int) int {
	if p.occupied != nil && p.occupied[depth][at] {
		return 0
	}
	return 1
}

// choose is criteria 5 to 10 among the places of a shortlist. Equal ones go to the first.
func (p *problem) choose(list shortlist) *solution {
	if list.place.depth > p.t.Depth() {
		return p.chooseNode(list)
	}
	var best *solution
	for _, at := range list.all {
		s := p.inside(place{list.place.depth, at}, list.opened, best)
		if s == nil {
			continue
		}
		if best == nil || s.compare(best) < 0 {
			exact := best == nil || best.exact
			best = s
			best.exact = best.exact && exact
		}
	}
	best.band, best.exact = p.band, best.exact && !p.unproven
	return best
}

// chooseNode is choose where one node holds all members.
func (p *problem) chooseNode(list shortlist) *solution {
	s := &solution{exact: true, band: p.band}
	for i, n := range list.all {
		supply := &p.supply[n]
		c := p.leafCost(p.t.of[p.t.Depth()][n])
		c.disliked = -supply.Preference * int64(p.members)
		lost := supply.Slots.lost(p.members)
		if i == 0 || cmp.Or(c.compare(s.cost), cmp.Compare(lost, s.lost)) < 0 {
			s.place, s.cost, s.lost = place{list.place.depth, n}, c, lost
		}
	}
	s.nodes = []share{{s.at, p.members}}
	return s
}

func (s *solution) compare(o *solution) int {
	return cmp.Or(s.cost.compare(o.cost), cmp.Compare(len(s.nodes), len(o.nodes)), cmp.Compare(s.lost, o.lost))
}

// inside is the best solution in one place; nil if that is worse than the best so far.
func (p *problem) inside(at place, opened []int, best *solution) *solution {
	s := &solution{place: at, opened: opened, exact: true}
	depth := p.t.Depth()
	switch {
	case at.depth == depth:
		s.cost = p.leafCost(at.at)
		s.choices = []leafShare{{at.at, p.capacity[depth][at.at], p.members}}
		if p.preferences {
			s.cost.disliked = p.dislike(at.at, p.members)[p.members]
		}
	case p.units(at, depth).tooLarge(opened):
		p.takeGreedily(s)
	case !p.search(s):
		return nil
	}
	if best != nil && s.cost.compare(best.cost) > 0 {
		return nil
	}
	for _, c := range s.choices {
		nodes, lost := p.within(c.leaf, c.members)
		s.nodes = append(s.nodes, nodes...)
		s.lost += lost
	}
	return s
}

// leafCost is what it costs to use one innermost domain and no other.
func (p *problem) leafCost(leaf int) cost {
	d := p.t.Depth()
	c := cost{leaves: p.capacity[d][leaf] * p.fresh(d, leaf)}
	if d > 0 {
		parent := p.t.domains[d][leaf].Parent
		c.parents = p.capacity[d-1][parent] * p.fresh(d-1, parent)
	}
	return c
}

// cost is criteria 5 to 7; smaller is better.
type cost struct {
	cuts     int   // segments that are not in one domain
	disliked int64 // preference of the nodes taken, negated
	// Slots of the innermost domains used, and of their parents: what is left there is that
	// minus the members, who are as many in every solution.
	leaves, parents int
}

func (c cost) compare(o cost) int {
	return cmp.Or(cmp.Compare(c.cuts, o.cuts), cmp.Compare(c.disliked, o.disliked),
		cmp.Compare(c.leaves, o.leaves), cmp.Compare(c.parents, o.parents))
}

func (c cost) plus(o cost) cost {
	return cost{c.cuts + o.cuts, c.disliked + o.disliked, c.leaves + o.leaves, c.parents + o.parents}
}
