// SPDX-License-Identifier: Apache-2.0

package fabric

import "cmp"

// solution is the nodes of the members of a problem.
type solution struct {
	place        // the smallest domain that contains the members and the held nodes
	outer  int   // depth of the smallest domain that also contains the near nodes
	opened []int // new domains by level inside that one
	fewest []int // a bound on these
	band   int
	cost   cost
	nodes  []share
	lost   int64
	exact  bool
	// choices are the innermost domains used; nil for a single node.
	choices []leafShare
}

// share is a number of members on a node.
type share struct{ node, members int }

// choose returns the best solution among the places of a shortlist by criteria 5 to 10, of equal ones the
// first.
func (p *problem) choose(list shortlist) *solution {
	best := p.chooseAmong(list)
	best.outer, best.opened, best.fewest, best.band = list.outer, list.opened, list.opened, p.band
	if p.unproven {
		best.exact = false
		best.fewest = p.bounds(list.frame)
	}
	return best
}

func (p *problem) chooseAmong(list shortlist) *solution {
	if list.depth > p.t.Depth() {
		return p.chooseNode(list)
	}
	var best *solution
	exact := true
	for _, at := range list.all {
		s := p.solveIn(place{list.depth, at}, list.inner())
		if s == nil {
			continue
		}
		exact = exact && s.exact
		c := -1
		if best != nil {
			c = s.cost.compare(best.cost)
		}
		if c > 0 {
			continue
		}
		if p.settle(s); c < 0 || s.compare(best) < 0 {
			best = s
		}
	}
	best.exact = exact
	return best
}

// chooseNode is choose where one node holds all members.
func (p *problem) chooseNode(list shortlist) *solution {
	s := &solution{exact: true}
	for i, n := range list.all {
		supply := p.at(n)
		c := p.leafCost(p.t.of[p.t.Depth()][n])
		c.disliked = -supply.Preference * int64(p.members)
		lost := supply.Slots.lost(p.members)
		if i == 0 || cmp.Or(c.compare(s.cost), cmp.Compare(lost, s.lost)) < 0 {
			s.place, s.cost, s.lost = place{list.depth, n}, c, lost
		}
	}
	s.nodes = []share{{s.at, p.members}}
	return s
}

func (s *solution) compare(o *solution) int {
	return cmp.Or(s.cost.compare(o.cost), cmp.Compare(len(s.nodes), len(o.nodes)), cmp.Compare(s.lost, o.lost))
}

// solveIn chooses the innermost domains in one place; nil if there is no solution after all.
func (p *problem) solveIn(at place, opened []int) *solution {
	s := &solution{place: at, exact: true}
	depth := p.t.Depth()
	switch {
	case at.depth == depth:
		s.cost = p.leafCost(at.at)
		s.choices = []leafShare{{at.at, p.capacity[depth][at.at], p.members}}
		if p.preferences {
			s.cost.disliked = p.dislike(at.at, p.members)[p.members]
		}
	case p.units(at, depth).tooLarge(opened, p.most.table):
		p.takeGreedily(s)
	case !p.search(s, opened):
		return nil
	}
	return s
}

// settle chooses the nodes in the domains of a solution.
func (p *problem) settle(s *solution) {
	for _, c := range s.choices {
		nodes, lost := p.within(c.leaf, c.members)
		s.nodes = append(s.nodes, nodes...)
		s.lost += lost
	}
}

// leafCost returns the cost of using one innermost domain and no other.
func (p *problem) leafCost(leaf int) cost {
	d := p.t.Depth()
	c := cost{leaves: p.capacity[d][leaf] * p.fresh(d, leaf)}
	if d > 0 {
		parent := p.t.domains[d][leaf].Parent
		c.parents = p.capacity[d-1][parent] * p.fresh(d-1, parent)
	}
	return c
}

// cost is the value by criteria 5 to 7; smaller is better.
type cost struct {
	cuts     int   // segments that are not in one domain
	disliked int64 // preference of the nodes taken, negated
	// Slots of the innermost domains used, and of their parents: the slots left are these minus the members,
	// whose number is the same in every solution.
	leaves, parents int
}

func (c cost) compare(o cost) int {
	return cmp.Or(cmp.Compare(c.cuts, o.cuts), cmp.Compare(c.disliked, o.disliked),
		cmp.Compare(c.leaves, o.leaves), cmp.Compare(c.parents, o.parents))
}

func (c cost) plus(o cost) cost {
	return cost{c.cuts + o.cuts, c.disliked + o.disliked, c.leaves + o.leaves, c.parents + o.parents}
}
