// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"cmp"
	"slices"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// mixture is the state of placing a gang's parts one after the other: the nodes given so far and the room
// left.
type mixture struct {
	g       *gang
	changed []map[int]Supply // by shape, then node
	taken   map[int]int      // by node, where there is one shape only: slots
	used    map[int]nvtopo.Mask
	placed  map[int][]int // by node, then shape
	hold    []int         // nodes of all members so far, and those to be near to
	nodes   [][]share     // by part
	band    int
	sets    map[seatsKey][]nvtopo.Mask // what members were given
}

// seatsKey identifies the members of one shape on one node.
type seatsKey struct{ shape, node int }

func newMixture(g *gang) *mixture {
	m := &mixture{g: g, hold: slices.Concat(g.bound, g.near), nodes: make([][]share, len(g.parts))}
	if g.several() {
		m.changed = make([]map[int]Supply, len(g.r.Shapes))
		m.used, m.placed, m.sets = map[int]nvtopo.Mask{}, map[int][]int{}, map[seatsKey][]nvtopo.Mask{}
	}
	return m
}

// problem returns the problem of placing part i on the remaining room.
func (m *mixture) problem(i int) *problem {
	p := m.g.problem(&m.g.parts[i])
	p.taken, p.occupied = m.taken, m.g.occupy(m.hold)
	if m.changed != nil {
		p.changed = m.changed[m.g.parts[i].shape]
	}
	return p
}

// take assigns nodes to part i; with several shapes it also recomputes the room that is left there.
func (m *mixture) take(i int, nodes []share, band int) {
	g, shape := m.g, m.g.parts[i].shape
	m.nodes[i] = append(m.nodes[i], nodes...)
	m.band = max(m.band, band)
	for _, s := range nodes {
		m.hold = append(m.hold, s.node)
		if m.changed == nil {
			if m.taken == nil {
				m.taken = map[int]int{}
			}
			m.taken[s.node] += s.members
			continue
		}
		sets := m.supply(shape, s.node).Slots.Sets(s.members)
		key := seatsKey{shape, s.node}
		m.sets[key] = append(m.sets[key], sets...)
		m.used[s.node] |= union(sets)
		if m.placed[s.node] == nil {
			m.placed[s.node] = make([]int, len(g.r.Shapes))
		}
		m.placed[s.node][shape] += s.members
		for _, p := range g.parts {
			if m.changed[p.shape] == nil {
				m.changed[p.shape] = map[int]Supply{}
			}
			m.changed[p.shape][s.node] = g.r.Remaining(p.shape, s.node, m.used[s.node], slices.Clone(m.placed[s.node]))
		}
	}
}

// supply returns the remaining room of a node for members of one of several shapes.
func (m *mixture) supply(shape, node int) *Supply {
	if changed, ok := m.changed[shape][node]; ok {
		return &changed
	}
	return &m.g.r.Shapes[shape].Nodes[node]
}

// outcome returns the nodes and GPU sets assigned so far.
func (m *mixture) outcome() *outcome {
	sets := m.sets
	if sets == nil { // what a node gives to several parts of one shape is divided among them
		sets = map[seatsKey][]nvtopo.Mask{}
		shape := m.g.parts[0].shape
		for node, members := range m.taken {
			sets[seatsKey{shape, node}] = m.g.r.Shapes[shape].Nodes[node].Slots.Sets(members)
		}
	}
	return &outcome{nodes: m.nodes, band: m.band, sets: sets}
}

// bound is a lower limit for the plans of a gang of several parts: each part placed as if it were alone.
type bound struct {
	frame
	opened []int
	band   int
	places []int // of the frame, where it is reached by the part that needs most
	exact  bool  // it is proven
}

func (g *gang) leastOf(order []int) (bound, bool) {
	b := bound{frame: frame{g.t.Depth() + 1, g.t.Depth() + 1}, exact: true}
	for _, i := range order {
		p := g.problem(&g.parts[i])
		list, ok := p.decide()
		if !ok {
			return b, false
		}
		band, opened := p.band, list.opened
		if p.unproven {
			b.exact = false
			opened = p.bounds(list.frame)
		}
		c := cmp.Or(cmp.Compare(b.outer, list.outer), CompareDomains(opened, b.opened))
		if c > 0 { // with more domains the parts before might do in a better band
			b.frame, b.opened, b.band, b.places = list.frame, opened, band, list.all
		} else if c == 0 {
			b.band = max(b.band, band)
		}
	}
	return b, true
}

// reached reports whether an outcome in frame f attains the bound, so that no plan is better.
func (b *bound) reached(f frame, o *outcome) bool {
	return f.outer == b.outer && slices.Equal(o.opened, b.opened) && o.band <= b.band
}

// placeMixed places a gang of several parts: in each place from the innermost level on, the largest
// members first and the others near them, or the other way round; and if that finds nothing, all parts at
// the same time. The plan is exact if it reaches the least that each part alone would need, in the
// criteria that are promised for several shapes.
func (g *gang) placeMixed() (*candidate, *UnplaceableError) {
	least, ok := g.leastOf(inOrder(len(g.parts)))
	if !ok {
		return nil, g.withoutRoom()
	}
	for _, f := range g.plain(&g.parts[0]).frames() {
		if f.outer > least.outer {
			continue
		}
		best := g.mixedAt(f, &least)
		if best == nil {
			continue
		}
		best.exact = g.several() && least.exact && least.reached(f, best)
		best.fewest = g.fewestOf(least.outer, least.opened)
		if !best.exact {
			best.fewest = g.fewestOf(0, g.bounds())
		}
		return &candidate{outcome: best, outer: f.outer, opened: best.opened}, nil
	}
	if c := g.placeTogether(); c != nil {
		return c, nil
	}
	return nil, g.withoutRoom()
}

// bounds returns the least number of new domains of each level that any plan needs: the largest over the
// parts.
func (g *gang) bounds() (out []int) {
	for i := range g.parts {
		b := g.plain(&g.parts[i]).bounds(frame{})
		for d := range b {
			if i == 0 {
				out = append(out, 0)
			}
			out[d] = max(out[d], b[d])
		}
	}
	return out
}

// inOrder returns the numbers below n.
func inOrder(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// mixedAt returns the best outcome over the places of a frame: fewest domains inside, best band, first.
func (g *gang) mixedAt(f frame, least *bound) *outcome {
	var best *outcome
	forth, back := inOrder(len(g.parts)), inOrder(len(g.parts))
	slices.Reverse(back)
	places := g.mixedPlaces(f)
	if f == least.frame { // most likely to be the best
		likely := func(i int) bool { return slices.Contains(least.places, i) }
		rest := slices.DeleteFunc(slices.Clone(places), likely)
		places = append(slices.DeleteFunc(places, func(i int) bool { return !likely(i) }), rest...)
	}
	for _, i := range places {
		for _, order := range [][]int{forth, back} {
			o := g.mixedIn(f, i, order)
			if o == nil {
				continue
			}
			if best == nil || cmp.Or(CompareDomains(o.opened, best.opened), cmp.Compare(o.band, best.band)) < 0 {
				best = o
			}
			break
		}
		if best != nil && (least.reached(f, best) || f.outer >= g.t.Depth() && best.band == 0) {
			break // nothing else can be better
		}
	}
	return best
}

// mixedPlaces returns the places of a frame that have room for each part alone, those with the
// least room for the first one first.
func (g *gang) mixedPlaces(f frame) (places []int) {
	for k := range g.parts {
		p := g.plain(&g.parts[k])
		p.load(worstBand)
		can := p.holding(f)
		if k == 0 {
			places = can
			slices.SortStableFunc(places, func(a, b int) int { return cmp.Compare(p.room(place{f.depth, a}), p.room(place{f.depth, b})) })
		} else {
			places = slices.DeleteFunc(places, func(i int) bool { _, found := slices.BinarySearch(can, i); return !found })
		}
	}
	return places
}

// mixedIn places the parts one after the other in one place; nil if one of them has no room left.
func (g *gang) mixedIn(f frame, at int, order []int) *outcome {
	m := newMixture(g)
	scope := place{f.depth, at}
	first, end := g.t.nodesOf(scope)
	for _, i := range order {
		p := m.problem(i)
		if f.depth > p.scope.depth {
			p.scope = scope
		}
		p.hold, p.near = nil, nil
		for _, n := range m.hold {
			if n >= first && n < end {
				p.near = append(p.near, n)
			}
		}
		s, ok := p.solve()
		if !ok {
			return nil
		}
		m.take(i, s.nodes, s.band)
	}
	o := m.outcome()
	o.opened = m.opened(f)
	return o
}

// opened returns the number of new domains of each level inside a frame.
func (m *mixture) opened(f frame) (out []int) {
	g := m.g
	for d := f.outer + 1; d <= g.t.Depth(); d++ {
		opened := 0
		for _, i := range g.t.among(d, m.hold) {
			if g.occupied == nil || !g.occupied[d][i] {
				opened++
			}
		}
		out = append(out, opened)
	}
	return out
}

// placeTogether returns a plan in the smallest place that holds all members at the same time; nil if none
// does.
func (g *gang) placeTogether() *candidate {
	x := newTogether(g)
	if x == nil {
		return nil
	}
	frames := g.plain(&g.parts[0]).frames()
	if len(x.places(frames[len(frames)-1])) == 0 {
		return nil
	}
	for _, f := range frames {
		for _, i := range x.places(f) {
			if m := x.mixture(x.in(place{f.depth, i})); m != nil {
				o := m.outcome()
				o.opened, o.fewest = m.opened(f), g.fewestOf(0, g.bounds())
				return &candidate{outcome: o, outer: f.outer, opened: o.opened}
			}
			x.cut = true
		}
	}
	return nil
}

// places returns the places of a frame that hold all members.
func (x *together) places(f frame) []int {
	return slices.DeleteFunc(x.g.mixedPlaces(f), func(i int) bool { return x.lacking(x.in(place{f.depth, i})) > 0 })
}

// mixture assigns GPUs to members along a way; nil if a node has less room than another node of its kind.
func (x *together) mixture(last *way) *mixture {
	var steps []*way
	for w := last; w.before != nil; w = w.before {
		steps = append(steps, w)
	}
	m := newMixture(x.g)
	for _, w := range slices.Backward(steps) {
		for _, i := range w.filling.order {
			n, s := w.members[i]-w.before.members[i], m.supply(x.g.parts[i].shape, w.node)
			if s.Members() < n {
				return nil
			}
			band := 0
			for s.count(band) < n {
				band++
			}
			if n > 0 {
				m.take(i, []share{{w.node, n}}, band)
			}
		}
	}
	return m
}

// withoutRoom returns the refusal of a gang of several parts, with how many members fit at the same time.
func (g *gang) withoutRoom() *UnplaceableError {
	e := g.unplaceable(g.detail())
	x := newTogether(g)
	if x == nil {
		return e
	}
	var parts []*problem
	for i := range g.parts {
		p := g.plain(&g.parts[i])
		p.load(worstBand)
		parts = append(parts, p)
	}
	b := &beside{g.t, g.r, g.w, g.bound}
	best := &way{members: make([]int, len(parts))}
	have, domain := b.roomiest(func(at place) int {
		if b.room(parts, at) > total(best.members) {
			if w := x.in(at); total(w.members) > total(best.members) {
				best = w
			}
		}
		return total(best.members)
	})
	if x.cut || x.mixture(best) == nil {
		return e // more may fit, or a node turned out to have less: the room of each shape alone stays
	}
	e.Have, e.Domain, e.AtMost, e.Unproven = min(have, e.Want-1), domain, false, false
	e.Fit = make([]int, len(g.r.Shapes))
	for i, p := range g.parts {
		e.Fit[p.shape] += best.members[i]
	}
	return e
}
