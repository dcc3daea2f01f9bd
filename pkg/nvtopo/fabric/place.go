// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"slices"

	"github.com/nvtopo/nvtopo/pkg/nvtopo/nodeindex"
)

// worstBand is the band that includes every set that fits.
const worstBand = nodeindex.Bands - 1

// Place plans a gang by the published objective (docs/decisions/0019-gang-objective.md). The error is an
// *UnplaceableError if there is no room now; any other error is a fault of the request. A gang whose
// members are all bound is judged as it is.
func Place(t *Tree, r *Request) (*Plan, error) {
	return placeWithin(t, r, limits{states: maxStates, table: maxTable})
}

// limits bound the work of a plan.
type limits struct{ states, table int }

func placeWithin(t *Tree, r *Request, most limits) (*Plan, error) {
	w, err := r.check(t)
	if err != nil {
		return nil, err
	}
	work := t.workspace()
	defer t.release(work)
	own := *r // its shapes get lists of nodes
	own.Shapes = slices.Clone(r.Shapes)
	g := newGang(t, &own, w, most, work)
	if g.missing == 0 {
		return g.finish(&outcome{exact: true, fewest: g.fewestOf(t.Depth(), nil)}), nil
	}
	if err := g.torn(); err != nil {
		return nil, err
	}
	if kinds := g.kinds(); len(kinds) > 0 {
		return g.placeByModel(kinds)
	}
	c, none := g.place()
	if none != nil {
		return nil, none
	}
	return g.best(c.orFaster(g)).plan, nil
}

// place plans without regard to models.
func (g *gang) place() (*candidate, *UnplaceableError) {
	switch {
	case g.w.spread >= 0:
		return g.placeSpread()
	case len(g.parts) > 1:
		return g.placeMixed()
	}
	s, ok := g.problem(&g.parts[0]).solve()
	if !ok {
		return nil, g.unplaceable(g.detail())
	}
	return &candidate{outcome: g.outcomeOf(s), outer: s.outer, opened: s.opened, solution: s}, nil
}

// place is a domain, or a node where depth is one more than the tree's.
type place struct{ depth, at int }

// frame is how compact a plan is: in one place of a depth and, with the nodes it should be near to, in
// one domain of the outer depth. Without such nodes both depths are the same.
type frame struct{ outer, depth int }

// solve returns the best solution by all criteria.
func (p *problem) solve() (*solution, bool) {
	list, ok := p.decide()
	if !ok {
		return nil, false
	}
	return p.choose(list), true
}

// decide returns the shortlist by criteria 2 to 4: it finds the level and the fewest domains with all
// bands, and then the best band in which these stay the same, which it leaves loaded. Level and domains
// come first in the objective, and fewer slots never need fewer domains.
func (p *problem) decide() (shortlist, bool) {
	p.load(worstBand)
	target, ok := p.fewest()
	if !ok {
		return target, false
	}
	for band := range worstBand {
		changed := p.load(band)
		if band == 0 && !changed {
			return target, true
		}
		if !changed {
			continue
		}
		got, ok := p.fewest()
		if ok && got.frame == target.frame && slices.Equal(got.opened, target.opened) {
			return got, true
		}
	}
	p.load(worstBand)
	return target, true
}

// shortlist is the places of the best frame that can hold the members, with the fewest domains inside it.
type shortlist struct {
	frame
	all    []int // numbers of the places
	opened []int // new domains by level inside the outer domain, outermost first
}

// inner returns the new domains inside the places.
func (l *shortlist) inner() []int {
	return l.opened[min(l.depth-l.outer, len(l.opened)):]
}

// base returns the depth of the outermost level that a place may have.
func (p *problem) base() int { return max(p.required, p.scope.depth) }

// frames returns the levels to try, best first.
func (p *problem) frames() (out []frame) {
	base := p.base()
	for d := p.t.Depth() + 1; d >= base; d-- {
		out = append(out, frame{d, d})
	}
	if len(p.near) > 0 {
		for d := base - 1; d >= 0; d-- {
			out = append(out, frame{d, base})
		}
	}
	return out
}

// fewest returns the shortlist by criteria 2 and 3: the level, and the fewest domains inside, summed over
// all levels.
func (p *problem) fewest() (shortlist, bool) {
	for _, f := range p.frames() {
		list := shortlist{frame: f}
		all := p.holding(f)
		if len(all) > 0 && f.outer >= p.t.Depth() {
			list.all = all // nothing is inside
			return list, true
		}
		for _, at := range all {
			opened, ok := p.openedIn(f, at)
			if !ok {
				continue
			}
			c := -1
			if list.all != nil {
				c = CompareDomains(opened, list.opened)
			}
			switch {
			case c < 0:
				list.all, list.opened = []int{at}, opened
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

// openedIn returns the new domains of each level inside the outer domain of a frame.
func (p *problem) openedIn(f frame, at int) ([]int, bool) {
	path := p.path(f, at)
	if f.depth >= p.t.Depth() {
		return path, true
	}
	inner, ok := p.opened(place{f.depth, at})
	return append(path, inner...), ok
}

// path returns which domains from the outer one of a frame to a place are new, as 0 or 1.
func (p *problem) path(f frame, at int) (out []int) {
	n, _ := p.t.nodesOf(place{f.depth, at})
	for d := f.outer + 1; d <= min(f.depth, p.t.Depth()); d++ {
		out = append(out, p.fresh(d, p.t.of[d][n]))
	}
	return out
}

// holding returns the places of a frame that have room for all members, contain the held nodes, and are
// near enough.
func (p *problem) holding(f frame) (out []int) {
	t := p.t
	if p.blocked >= 0 {
		return nil
	}
	first, end := p.t.nodesOf(p.scope)
	if f.depth <= t.Depth() {
		first, end = p.inside(f.depth)
	}
	for i := first; i < end; i++ {
		at := place{f.depth, i}
		if p.room(at) >= p.members && p.named(at) && p.holds(at) && p.isNear(f, at) {
			out = append(out, i)
		}
	}
	return out
}

func (p *problem) room(at place) int {
	if at.depth > p.t.Depth() {
		return p.slots[at.at]
	}
	return p.capacity[at.depth][at.at]
}

// named reports whether a place is valid as one domain. A node that is alone is in no domain of a
// required level.
func (p *problem) named(at place) bool {
	t := p.t
	if at.depth > t.Depth() {
		return p.label == 0 || p.label > t.Depth() || t.domains[p.label][t.of[p.label][at.at]].Name != ""
	}
	return t.domains[at.depth][at.at].Name != "" || at.depth == 0 || at.depth == p.base() && p.label < at.depth
}

func (p *problem) holds(at place) bool { return p.t.within(p.hold, at) }

// isNear reports whether the nodes to be near to are in the outer domain of a frame.
func (p *problem) isNear(f frame, at place) bool {
	if f.outer < at.depth {
		n, _ := p.t.nodesOf(at)
		at = place{f.outer, p.t.of[f.outer][n]}
	}
	return p.t.within(p.near, at)
}

func (t *Tree) within(nodes []int, at place) bool {
	first, end := t.nodesOf(at)
	return !slices.ContainsFunc(nodes, func(n int) bool { return n < first || n >= end })
}

// fresh returns 1 for a domain without members, 0 for one that has some.
func (p *problem) fresh(depth, at int) int {
	if p.occupied != nil && p.occupied[depth][at] {
		return 0
	}
	return 1
}
