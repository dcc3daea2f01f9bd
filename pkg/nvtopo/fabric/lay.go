// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"cmp"
	"slices"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// seat is a member's node and GPUs.
type seat struct {
	node int
	set  nvtopo.Mask
}

// lay assigns seats to the members in the order of ranks: node after node, so that a domain is left once.
// Whole segments come before the remaining members.
func (g *gang) lay(plan *Plan, o *outcome) {
	given := map[seatsKey]int{} // sets of a node already assigned
	for i, nodes := range o.nodes {
		p := &g.parts[i]
		var seats []seat
		for _, s := range nodes {
			key := seatsKey{p.shape, s.node}
			sets := o.sets[key]
			if o.sets == nil {
				sets = g.r.Shapes[p.shape].Nodes[s.node].Slots.Sets(s.members)
			}
			for range s.members {
				e := seat{node: s.node}
				if at := given[key]; at < len(sets) {
					e.set = sets[at]
				}
				given[key]++
				seats = append(seats, e)
			}
		}
		members := p.members
		if p.segments != nil {
			members, seats = g.laySegments(plan, p, seats)
		}
		plan.seat(members, seats)
	}
}

func (p *Plan) seat(members []int, seats []seat) {
	for i, m := range members {
		p.Nodes[m], p.Sets[m] = seats[i].node, seats[i].set
	}
}

// laySegments assigns the segments that can be whole: in each domain first those that have members there,
// fewest lacking first so that most become whole, and then the others. It returns the remaining members
// and seats.
func (g *gang) laySegments(plan *Plan, p *part, seats []seat) (members []int, rest []seat) {
	var domains []int
	var byDomain [][]seat
	for _, s := range seats {
		at := g.t.of[g.w.segment][s.node]
		if n := len(domains); n == 0 || domains[n-1] != at {
			domains, byDomain = append(domains, at), append(byDomain, nil)
		}
		last := len(byDomain) - 1
		byDomain[last] = append(byDomain[last], s)
	}
	order := slices.Clone(p.segments)
	slices.SortStableFunc(order, func(a, b *segment) int {
		if a.home < 0 || b.home < 0 {
			return cmp.Compare(min(b.home, 0), min(a.home, 0)) // segments with a home first
		}
		return cmp.Compare(len(a.missing), len(b.missing))
	})
	for _, s := range order {
		at := slices.IndexFunc(byDomain, func(free []seat) bool { return len(free) >= len(s.missing) })
		if s.home >= 0 {
			at = slices.Index(domains, s.home)
		}
		if s.home == apart || at < 0 || len(byDomain[at]) < len(s.missing) {
			members = append(members, s.missing...)
			continue
		}
		plan.seat(s.missing, byDomain[at])
		byDomain[at] = byDomain[at][len(s.missing):]
	}
	slices.Sort(members)
	return members, slices.Concat(byDomain...)
}
