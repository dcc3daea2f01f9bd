// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"cmp"
	"slices"
)

// spreading is one way to spread members over the domains of a level.
type spreading struct {
	profile []int // members by domain, most first, bound ones included
	gets    []int // new members by domain of the level
	band    int
	left    int // slots of the domains that had no members: criterion 7
	outcome *outcome
}

// compare compares by the objective: most domains, then evenest, then best band, then fewest slots left.
func (s *spreading) compare(o *spreading) int {
	return cmp.Or(cmp.Compare(len(o.profile), len(s.profile)), slices.Compare(s.profile, o.profile),
		cmp.Compare(s.band, o.band), cmp.Compare(s.left, o.left))
}

// placeSpread puts members into as many domains as possible, as evenly as possible; the members of each
// domain are then placed one domain after the other, like gangs of their own.
func (g *gang) placeSpread() (*candidate, *UnplaceableError) {
	first := g.plain(&g.parts[0])
	first.members = 0 // the spreading decides about room
	first.load(worstBand)
	for _, f := range first.frames() {
		if f.depth != g.w.required {
			continue
		}
		var best *spreading
		for _, i := range first.holding(f) {
			if s := g.spreadIn(place{f.depth, i}, best); s != nil && (best == nil || s.compare(best) < 0) {
				best = s
			}
		}
		if best != nil {
			best.outcome.fewest = make([]int, g.t.Depth()+1)
			return &candidate{outcome: best.outcome, outer: f.outer, spread: best}, nil
		}
	}
	return nil, g.unplaceable(g.detail())
}

// spreadIn spreads the parts in one place one after the other, or in reverse order if that fails. A gang
// of one part is abandoned early if the best so far is as good.
func (g *gang) spreadIn(at place, best *spreading) *spreading {
	forth, back := inOrder(len(g.parts)), inOrder(len(g.parts))
	slices.Reverse(back)
	for _, order := range [][]int{forth, back} {
		if s := g.spreadParts(at, order, best); s != nil || len(order) == 1 {
			return s
		}
	}
	return nil
}

func (g *gang) spreadParts(at place, order []int, best *spreading) *spreading {
	m := newMixture(g)
	load := make([]int, len(g.t.domains[g.w.spread]))
	for _, n := range g.bound {
		load[g.t.of[g.w.spread][n]]++
	}
	out := &spreading{}
	exact := len(order) == 1
	for _, i := range order {
		p := m.problem(i)
		p.scope = at
		s := g.evenly(p, load)
		if s == nil || len(order) == 1 && best != nil && s.compare(best) >= 0 {
			return nil
		}
		out.profile, out.band, out.left = s.profile, max(out.band, s.band), out.left+s.left
		in := m.problem(i)
		for domain, n := range s.gets {
			if n == 0 {
				continue
			}
			placed, ok := g.spreadInto(in, place{g.w.spread, domain}, n, s.band, m.hold)
			if !ok {
				return nil
			}
			exact = exact && placed.exact
			m.take(i, placed.nodes, s.band)
			load[domain] += n
		}
	}
	out.outcome = m.outcome()
	out.outcome.exact = exact
	return out
}

// spreadInto places the members of one domain like a gang of their own.
func (g *gang) spreadInto(in *problem, scope place, members, band int, hold []int) (*solution, bool) {
	in.members, in.scope, in.required, in.label, in.loaded = members, scope, 0, 0, false
	first, end := g.t.nodesOf(scope)
	in.hold, in.near = nil, nil
	for _, n := range hold {
		if n >= first && n < end {
			in.hold = append(in.hold, n)
		}
	}
	in.occupied = g.occupy(in.hold)
	in.load(band)
	list, ok := in.fewest()
	if !ok {
		return nil, false
	}
	return in.choose(list), true
}

// evenly spreads a part in the best band in which the number and the evenness of the domains are the same
// as with all bands.
func (g *gang) evenly(p *problem, load []int) *spreading {
	p.load(worstBand)
	target := g.fillEvenly(p, load)
	if target == nil {
		return nil
	}
	target.band = worstBand
	for band := range worstBand {
		p.load(band)
		if s := g.fillEvenly(p, load); s != nil && slices.Equal(s.profile, target.profile) {
			s.band = band
			return s
		}
	}
	return target
}

// fillEvenly gives one member after the other to the domain with the fewest, among equals to the
// tightest. No other way uses more domains or is more even.
func (g *gang) fillEvenly(p *problem, load []int) *spreading {
	capacity := p.capacity[g.w.spread]
	first, end := p.inside(g.w.spread)
	s := &spreading{gets: make([]int, len(capacity))}
	for range p.members {
		to := -1
		for i := first; i < end; i++ {
			has := load[i] + s.gets[i]
			if s.gets[i] == capacity[i] || g.r.MaxPerDomain > 0 && has >= g.r.MaxPerDomain {
				continue
			}
			if to < 0 || cmp.Or(cmp.Compare(has, load[to]+s.gets[to]), cmp.Compare(capacity[i], capacity[to])) < 0 {
				to = i
			}
		}
		if to < 0 {
			return nil
		}
		s.gets[to]++
	}
	for i := first; i < end; i++ {
		if has := load[i] + s.gets[i]; has > 0 {
			s.profile = append(s.profile, has)
		}
		if s.gets[i] > 0 && load[i] == 0 {
			s.left += capacity[i]
		}
	}
	slices.SortFunc(s.profile, func(a, b int) int { return cmp.Compare(b, a) })
	return s
}
