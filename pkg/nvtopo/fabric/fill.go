// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"cmp"
	"slices"
)

// fill divides the members among the domains used: those that have members first, then the tightest.
// Whole segments come before the rest.
func (p *problem) fill(leaves []leafShare) {
	d := p.t.Depth()
	order := func(a, b leafShare) int {
		return cmp.Or(cmp.Compare(p.fresh(d, a.leaf), p.fresh(d, b.leaf)), cmp.Compare(a.slots, b.slots), cmp.Compare(a.leaf, b.leaf))
	}
	groups := []group{{leaves: slices.Clone(leaves), members: p.members}}
	if p.demand.size > 0 {
		groups = p.groups(leaves)
		p.fillSegments(groups)
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

// fillSegments divides the members among the domains of the segments' level: first those whose segment
// has members there, then whole segments, then the remaining members.
func (p *problem) fillSegments(groups []group) {
	left, free := p.members, p.demand.free*p.demand.size
	for i := range groups {
		for _, missing := range p.demand.homes[groups[i].domain] {
			if int(missing) <= groups[i].slots {
				groups[i].members = int(missing)
			}
		}
		left -= groups[i].members
	}
	for i := range groups {
		n := min(groups[i].slots-groups[i].members, left, free) / p.demand.size * p.demand.size
		groups[i].members += n
		left -= n
		free -= n
	}
	for i := range groups {
		n := min(groups[i].slots-groups[i].members, left)
		groups[i].members += n
		left -= n
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

// groups returns the groups, the tightest first.
func (p *problem) groups(leaves []leafShare) (out []group) {
	for _, l := range leaves {
		at := p.t.of[p.demand.depth][p.t.domains[p.t.Depth()][l.leaf].First]
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
