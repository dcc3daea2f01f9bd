// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"cmp"
	"slices"
)

// greedily takes the largest domains of each level until they hold the members; all but the last are
// filled. It is the fallback where a table would be too large: the number of domains just inside the
// place is the fewest, further in it may not be. Required segments stay whole, since capacities are of
// whole ones only and members are a multiple of these.
func (p *problem) greedily(at place, members int) (leaves []leafShare) {
	t := p.t
	if at.depth == t.Depth() {
		return []leafShare{{at.at, p.capacity[at.depth][at.at], members}}
	}
	inner := at.depth + 1
	dom := &t.domains[at.depth][at.at]
	var parts []int
	for i := t.of[inner][dom.First]; i <= t.of[inner][dom.End-1]; i++ {
		if p.capacity[inner][i] > 0 {
			parts = append(parts, i)
		}
	}
	slices.SortFunc(parts, func(a, b int) int {
		return cmp.Or(cmp.Compare(p.fresh(inner, a), p.fresh(inner, b)), cmp.Compare(p.capacity[inner][b], p.capacity[inner][a]), cmp.Compare(a, b))
	})
	for _, i := range parts {
		members -= p.forced(place{inner, i})
	}
	for _, i := range parts {
		n := p.forced(place{inner, i})
		more := min(members, p.capacity[inner][i]-n)
		members -= more
		if n += more; n > 0 {
			leaves = append(leaves, p.greedily(place{inner, i}, n)...)
		}
	}
	return leaves
}

// forced returns how many members must go to a place because their segments have members there.
func (p *problem) forced(at place) (n int) {
	if !p.demand.required || at.depth > p.demand.depth {
		return 0
	}
	for domain, missing := range p.demand.homes {
		first, _ := p.t.nodesOf(place{p.demand.depth, domain})
		if p.t.of[at.depth][first] == at.at {
			n += int(last(missing))
		}
	}
	return n
}

// bounds returns how few new domains of each level inside the outer domain of a frame hold the members,
// each level by itself.
func (p *problem) bounds(f frame) (out []int) {
	p.load(worstBand)
	for _, at := range p.holding(f) {
		b := p.path(f, at)
		for d := f.depth + 1; d <= p.t.Depth(); d++ {
			least, _ := p.units(place{f.depth, at}, d).atLeast(p.members)
			b = append(b, least)
		}
		if out == nil {
			out = b
		}
		for i := range out {
			out[i] = min(out[i], b[i])
		}
	}
	return out
}

func (p *problem) openedGreedily(at place) ([]int, bool) {
	p.unproven = true
	leaves := p.greedily(at, p.members)
	counts := make([]int, p.t.Depth()-at.depth)
	seen := map[place]bool{}
	for _, l := range leaves {
		first := p.t.domains[p.t.Depth()][l.leaf].First
		for i := range counts {
			d := at.depth + 1 + i
			if dom := (place{d, p.t.of[d][first]}); !seen[dom] {
				seen[dom] = true
				counts[i] += p.fresh(d, dom.at)
			}
		}
	}
	return counts, true
}

func (p *problem) takeGreedily(s *solution) {
	s.exact = false
	s.choices = p.greedily(s.place, p.members)
	slices.SortFunc(s.choices, func(a, b leafShare) int { return cmp.Compare(a.leaf, b.leaf) })
	for _, l := range s.choices {
		c := p.leafCost(l.leaf)
		if p.preferences {
			c.disliked = p.dislike(l.leaf, l.members)[l.members]
		}
		s.cost.disliked += c.disliked
		s.cost.leaves += c.leaves
	}
}
