// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"cmp"
	"slices"
)

// spreading is one way to spread members over the domains of a level.
type spreading struct {
	at      place // the part of the tree
	profile []int // members by domain, most first, bound ones included
	gets    []int // new members by domain of the level
	left    int   // slots of the domains that had no members: criterion 7
}

// placeSpread puts members into as many domains as possible, as evenly as possible; the
// domains are then placed one by one like gangs of their own.
func (g *gang) placeSpread() (*Plan, error) {
	o := &outcome{nodes: make([][]share, len(g.r.Shapes)), exact: true, fewest: make([]int, g.t.Depth()+1)}
	hold := slices.Clone(g.hold)
	m := newMixture(g)
	for _, shape := range g.byNeed() {
		nodes, band, ok := g.spread(shape, hold, m.supply[shape])
		if !ok {
			return nil, g.unplaceable(g.spreadDetail())
		}
		o.nodes[shape] = nodes
		o.band = max(o.band, band)
		for _, s := range nodes {
			hold = append(hold, s.node)
		}
		m.take(shape, nodes)
	}
	o.exact = o.exact && g.shapes == 1
	o.sets = m.sets
	return g.finish(o), nil
}

func (g *gang) spreadDetail() string {
	if g.r.MaxPerDomain > 0 {
		return "at most " + count(g.r.MaxPerDomain, "member") + " in one " + g.t.LevelName(g.w.spread)
	}
	return ""
}

func (g *gang) spread(shape int, hold []int, supply []Supply) ([]share, int, bool) {
	p := g.problem(shape, g.count[shape])
	p.supply = supply
	load := make([]int, len(g.t.domains[g.w.spread]))
	for _, n := range hold[len(g.r.Near):] {
		load[g.t.of[g.w.spread][n]]++
	}
	p.load(worstBand)
	target := g.spreadBest(p, load)
	if target == nil {
		return nil, 0, false
	}
	best := target
	for band := range worstBand {
		p.load(band)
		if got := g.spreadBest(p, load); got != nil && slices.Equal(got.profile, target.profile) {
			best = got
			break
		}
		p.load(worstBand)
	}
	var out []share
	for i, n := range best.gets {
		if n == 0 {
			continue
		}
		in := g.problem(shape, n)
		in.supply, in.required, in.scope = supply, 0, place{g.w.spread, i}
		dom := &g.t.domains[g.w.spread][i]
		in.hold = nil
		for _, h := range hold {
			if h >= dom.First && h < dom.End {
				in.hold = append(in.hold, h)
			}
		}
		in.occupied = g.occupy(in.hold)
		in.load(p.band)
		list, ok := in.fewest()
		if !ok {
			return nil, 0, false
		}
		out = append(out, in.choose(list).nodes...)
	}
	return out, p.band, true
}

// spreadBest compares the places of the required level: most domains, then evenest, then
// fewest slots left, then the first.
func (g *gang) spreadBest(p *problem, load []int) *spreading {
	var best *spreading
	for i := range g.t.domains[g.w.required] {
		dom := &g.t.domains[g.w.required][i]
		if !p.holds(dom.First, dom.End) || g.w.required > 0 && dom.Name == "" {
			continue
		}
		s := g.fillEvenly(p, load, place{g.w.required, i})
		if s != nil && (best == nil || s.compare(best) < 0) {
			best = s
		}
	}
	return best
}

func (s *spreading) compare(o *spreading) int {
	return cmp.Or(cmp.Compare(len(o.profile), len(s.profile)), slices.Compare(s.profile, o.profile), cmp.Compare(s.left, o.left))
}

// fillEvenly gives one member after the other to the domain that has fewest, among equals to
// the tightest. No other way uses more domains or is more even.
func (g *gang) fillEvenly(p *problem, load []int, at place) *spreading {
	dom := &g.t.domains[at.depth][at.at]
	if dom.First == dom.End {
		return nil
	}
	capacity := p.capacity[g.w.spread]
	first, last := g.t.of[g.w.spread][dom.First], g.t.of[g.w.spread][dom.End-1]
	s := &spreading{at: at, gets: make([]int, len(capacity))}
	for range p.members {
		to := -1
		for i := first; i <= last; i++ {
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
	for i := first; i <= last; i++ {
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
