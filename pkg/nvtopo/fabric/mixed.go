// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// mixture is what nodes have left while members of several shapes are placed.
type mixture struct {
	g      *gang
	supply [][]Supply // by shape, then node
	used   map[int]nvtopo.Mask
	placed map[int][]int              // by node, then shape
	sets   map[seatsKey][]nvtopo.Mask // what members were given
}

// seatsKey is the members of one shape on one node.
type seatsKey struct{ shape, node int }

func newMixture(g *gang) *mixture {
	m := &mixture{g: g, supply: slices.Clone(g.supply), used: map[int]nvtopo.Mask{}, placed: map[int][]int{}, sets: map[seatsKey][]nvtopo.Mask{}}
	if g.shapes > 1 {
		for s := range m.supply {
			m.supply[s] = slices.Clone(m.supply[s])
		}
	}
	return m
}

// take gives members of a shape what they have been placed on, and asks what is left there.
func (m *mixture) take(shape int, nodes []share) {
	for _, s := range nodes {
		sets := m.supply[shape][s.node].Slots.Sets(s.members)
		m.sets[seatsKey{shape, s.node}] = sets
		for _, set := range sets {
			m.used[s.node] |= set
		}
		if m.g.shapes == 1 {
			continue
		}
		if m.placed[s.node] == nil {
			m.placed[s.node] = make([]int, len(m.supply))
		}
		m.placed[s.node][shape] += s.members
		for other := range m.supply {
			if m.g.count[other] > 0 && other != shape {
				m.supply[other][s.node] = m.g.r.Remaining(other, s.node, m.used[s.node], slices.Clone(m.placed[s.node]))
			}
		}
	}
}

// byNeed returns the shapes of members without a node, those of the largest members first.
func (g *gang) byNeed() (shapes []int) {
	for s, n := range g.count {
		if n > 0 {
			shapes = append(shapes, s)
		}
	}
	slices.SortStableFunc(shapes, func(a, b int) int {
		return cmp.Or(cmp.Compare(g.r.Shapes[b].GPUs, g.r.Shapes[a].GPUs), cmp.Compare(g.count[b], g.count[a]))
	})
	return shapes
}

// bound is what no plan of a gang of several shapes can beat: each shape as if it were alone.
type bound struct {
	depth  int
	opened []int
	band   int
}

func (g *gang) bound(shapes []int) (bound, bool) {
	b := bound{depth: g.t.Depth() + 1}
	for _, shape := range shapes {
		s, ok := g.problem(shape, g.count[shape]).solve()
		if !ok {
			return b, false
		}
		switch {
		case s.depth < b.depth:
			b = bound{s.depth, s.opened, s.band}
		case s.depth == b.depth:
			b.band = max(b.band, s.band)
			for i := range b.opened {
				b.opened[i] = max(b.opened[i], s.opened[i])
			}
		}
	}
	return b, true
}

// placeMixed places a gang of several shapes: in each place from the innermost level on, the
// shape of the largest members first and the others near it, or the other way round. The plan
// is exact if it reaches what each shape alone would need at least.
func (g *gang) placeMixed() (*Plan, error) {
	shapes := g.byNeed()
	least, ok := g.bound(shapes)
	if !ok {
		return nil, g.unplaceable("")
	}
	for d := least.depth; d >= g.w.required; d-- {
		best := g.mixedAt(d, shapes)
		if best == nil {
			continue
		}
		best.exact = best.exact && d == least.depth && slices.Equal(best.opened, least.opened) && best.band <= least.band
		best.fewest = make([]int, g.t.Depth()+1)
		for depth := range best.fewest {
			best.fewest[depth] = max(1, g.occupiedAt(depth))
			if inside := depth - least.depth - 1; inside >= 0 && inside < len(least.opened) {
				best.fewest[depth] = max(1, g.occupiedAt(depth)+least.opened[inside])
			}
		}
		return g.finish(best), nil
	}
	return nil, g.unplaceable("not of all shapes together")
}

// mixedAt is the best of the places of one depth: fewest domains inside, best band, first.
func (g *gang) mixedAt(depth int, shapes []int) *outcome {
	var places []int
	for k, shape := range shapes {
		p := g.problem(shape, g.count[shape])
		p.load(worstBand)
		can := p.holding(depth)
		if k == 0 {
			places = can
			if depth <= g.t.Depth() {
				slices.SortStableFunc(places, func(a, b int) int { return cmp.Compare(p.capacity[depth][a], p.capacity[depth][b]) })
			}
		} else {
			places = slices.DeleteFunc(places, func(i int) bool { return !slices.Contains(can, i) })
		}
	}
	back := slices.Clone(shapes)
	slices.Reverse(back)
	var best *outcome
	for _, i := range places {
		for _, order := range [][]int{shapes, back} {
			o := g.mixedIn(place{depth, i}, order)
			if o == nil {
				continue
			}
			if best == nil || cmp.Or(slices.Compare(o.opened, best.opened), cmp.Compare(o.band, best.band)) < 0 {
				best = o
			}
			break
		}
		if best != nil && depth >= g.t.Depth() && best.band == 0 {
			break // nothing else can be better
		}
	}
	return best
}

// mixedIn places the shapes one after the other; nil if that does not work out.
func (g *gang) mixedIn(at place, shapes []int) *outcome {
	m := newMixture(g)
	o := &outcome{nodes: make([][]share, len(g.r.Shapes)), exact: true}
	hold := slices.Clone(g.hold)
	for _, shape := range shapes {
		p := g.problem(shape, g.count[shape])
		p.supply, p.scope, p.hold, p.occupied = m.supply[shape], at, hold, g.occupy(hold)
		s, ok := p.solve()
		if !ok {
			return nil
		}
		o.nodes[shape], o.band = s.nodes, max(o.band, s.band)
		for _, n := range s.nodes {
			hold = append(hold, n.node)
		}
		m.take(shape, s.nodes)
	}
	o.sets = m.sets
	for d := at.depth + 1; d <= g.t.Depth(); d++ {
		seen := map[int]bool{}
		for _, n := range hold {
			if i := g.t.of[d][n]; g.occupied == nil || !g.occupied[d][i] {
				seen[i] = true
			}
		}
		o.opened = append(o.opened, len(seen))
	}
	return o
}

// placeSegments fills the gaps in a gang with segments of which some members have their nodes.
// If they are all of one segment, its other members say where it belongs. Otherwise they are
// placed as if there were no segments.
func (g *gang) placeSegments() (*Plan, error) {
	segment, one := -1, true
	var peers []int
	for rank, m := range g.r.Members {
		if !m.Bound {
			one = one && (segment < 0 || segment == rank/g.r.SegmentSize)
			segment = rank / g.r.SegmentSize
		}
	}
	for rank, m := range g.r.Members {
		if m.Bound && rank/g.r.SegmentSize == segment {
			peers = append(peers, m.Node)
		}
	}
	p := g.problem(g.firstShape, g.missing)
	p.segment, p.size, p.segmentRequired = -1, 0, false
	if one && len(peers) > 0 && g.t.sameDomain(peers, g.w.segment) {
		home := *p
		home.scope, home.required = place{g.w.segment, g.t.of[g.w.segment][peers[0]]}, min(g.w.required, g.w.segment)
		home.hold = peers
		if s, ok := home.solve(); ok {
			return g.finish(g.outcomeOf(s)), nil
		}
	}
	s, ok := p.solve()
	if ok {
		o := g.outcomeOf(s)
		o.exact = false
		if plan := g.finish(o); plan.SegmentsCut == 0 || !g.r.SegmentRequired {
			return plan, nil
		}
	}
	return nil, g.unplaceable("in whole segments of " + strconv.Itoa(g.r.SegmentSize))
}

func (t *Tree) sameDomain(nodes []int, depth int) bool {
	return !slices.ContainsFunc(nodes, func(n int) bool { return t.of[depth][n] != t.of[depth][nodes[0]] })
}

func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return strconv.Itoa(n) + " " + what
}
