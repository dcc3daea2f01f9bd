// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"cmp"
	"slices"
)

// Bounds on the plans of one gang in search of one faster than its first: by faster rings, by pairs of
// domains with a fast link, and in all.
const (
	maxByRings = 6
	maxByPairs = 4
	maxFaster  = 16
)

// orFaster returns the candidate, judged, and others of the same gang that avoid its bottlenecks: slow
// rings inside nodes, and links between nodes where other links are faster. Spread members have no
// others, and links are ignored if the gang should be near to something. Over a network that is not
// known, more nodes are never faster, and a worse band is never better.
func (c *candidate) orFaster(g *gang) []*candidate {
	f := faster{found: []*candidate{c.judge(g)}, tries: g.tries}
	if g.w.spread >= 0 {
		return f.found
	}
	for range maxByRings {
		if !f.onFasterRings(f.found[len(f.found)-1]) {
			break
		}
	}
	if len(g.near) > 0 {
		return f.found
	}
	pairs := g.t.fastPairs()
	for _, p := range pairs[:min(len(pairs), maxByPairs)] {
		if *f.tries > 0 {
			f.try(g.onlyIn(p))
		}
	}
	for _, c := range slices.Clone(f.found) {
		f.avoid(c)
	}
	return f.found
}

// faster collects the candidates of one gang.
type faster struct {
	found []*candidate
	tries *int // plans left, shared by all choices of models
}

// try makes one more plan.
func (f *faster) try(g *gang) (*candidate, bool) {
	if g == nil || *f.tries <= 0 {
		return nil, false
	}
	*f.tries--
	g.faster = true
	c, none := g.place()
	if none != nil {
		return nil, false
	}
	c.judge(g)
	first := f.found[0]
	if _, known := c.time(true); !known {
		if c.nodes() > first.nodes() || c.plan.Band > first.plan.Band {
			return nil, false
		}
		c.plan.Exact = c.plan.Exact && first.plan.Exact
	}
	c.plan.Fewest = first.plan.Fewest
	if slices.ContainsFunc(f.found, func(o *candidate) bool { return slices.Equal(o.plan.Nodes, c.plan.Nodes) }) {
		return nil, false
	}
	f.found = append(f.found, c)
	return c, true
}

// nodes returns the number of nodes of the plan.
func (c *candidate) nodes() int { return len(c.gang.t.among(c.gang.t.Depth()+1, c.plan.Nodes)) }

// onFasterRings makes a plan on rings that are faster than the candidate's slowest one by more than the
// tolerance.
func (f *faster) onFasterRings(c *candidate) bool {
	if c.ring == 0 {
		return false
	}
	g := *c.gang
	g.floor = c.ring + int64(timeTolerance*float64(c.ring)) + 1
	for i := range g.parts {
		shape := &g.r.Shapes[g.parts[i].shape]
		if slices.ContainsFunc(shape.withSlots, func(n int32) bool { return shape.Nodes[n].Slots.fastest >= g.floor }) {
			_, ok := f.try(&g)
			return ok
		}
	}
	return false // no node has a ring that is fast enough
}

// avoid makes plans without one end of the candidate's slowest link, and then without that of the new
// plan: the nodes that can send no more, or one of two domains with a link of their own. A link of a
// level is not avoided: the first plan has the best level possible.
func (f *faster) avoid(c *candidate) {
	g, t := c.gang, c.gang.t
	w := t.weakest(c.plan.Nodes)
	if w.Assumed || w.Bandwidth <= 0 || c.nodes() < 2 || *f.tries <= 0 {
		return
	}
	var ways []*gang
	if t.bandwidth != nil && (t.bandwidth[w.a] == w.Bandwidth || t.bandwidth[w.b] == w.Bandwidth) {
		ways = append(ways, g.closing(func(n int) bool { return t.bandwidth[n] > 0 && t.bandwidth[n] <= w.Bandwidth }))
	} else if p, ok := t.overridden(w.a, w.b); ok {
		for _, domain := range [...]int{p.a, p.b} {
			ways = append(ways, g.closing(func(n int) bool { return t.of[p.depth][n] == domain }))
		}
	}
	for _, way := range ways {
		if next, ok := f.try(way); ok {
			f.avoid(next)
		}
	}
}

// closing returns the gang with some nodes closed; nil if bound members are on one of them.
func (g *gang) closing(drop func(node int) bool) *gang {
	if slices.ContainsFunc(g.bound, drop) {
		return nil
	}
	out := *g
	out.closed = make([]bool, g.t.Len())
	for n := range out.closed {
		out.closed[n] = g.closed != nil && g.closed[n] || drop(n)
	}
	return &out
}

// onlyIn returns the gang restricted to the two domains of a pair; nil if bound members are elsewhere.
func (g *gang) onlyIn(p pair) *gang {
	return g.closing(func(n int) bool { return g.t.of[p.depth][n] != p.a && g.t.of[p.depth][n] != p.b })
}

// fastPairs returns the pairs of domains whose own link is faster than that of their level, fastest
// first.
func (t *Tree) fastPairs() (out []pair) {
	for p, l := range t.overrides {
		common := t.Common(t.domains[p.depth][p.a].First, t.domains[p.depth][p.b].First)
		if l.Bandwidth > t.levelLink(common).Bandwidth && !l.Assumed {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b pair) int {
		return cmp.Or(cmp.Compare(t.overrides[b].Bandwidth, t.overrides[a].Bandwidth),
			cmp.Compare(a.depth, b.depth), cmp.Compare(a.a, b.a), cmp.Compare(a.b, b.b))
	})
	return out
}
