// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"slices"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// gang is a request being planned.
type gang struct {
	t *Tree
	r *Request
	w wishes

	count      []int // members without a node, by shape
	missing    int   // their sum
	shapes     int   // that some of them have
	firstShape int   // the first of these
	hold       []int // nodes of bound members, and those to be near to
	occupied   [][]bool
	supply     [][]Supply // by shape
	prefers    []bool     // by shape: some node is preferred
	estimated  bool       // some node's slots are only a lower bound
}

// outcome is where the members without a node go, by shape.
type outcome struct {
	nodes  [][]share
	band   int
	exact  bool
	fewest []int // by depth
	opened []int // new domains by level inside the place; of a gang of several shapes
	// sets are what members get; nil if nodes have what the supply said at first.
	sets map[seatsKey][]nvtopo.Mask
}

func newGang(t *Tree, r *Request, w wishes) *gang {
	g := &gang{t: t, r: r, w: w, count: make([]int, len(r.Shapes)), hold: slices.Clone(r.Near)}
	for _, m := range r.Members {
		if m.Bound {
			g.hold = append(g.hold, m.Node)
		} else {
			g.count[m.Shape]++
		}
	}
	for s, n := range slices.Backward(g.count) {
		if n > 0 {
			g.missing += n
			g.shapes++
			g.firstShape = s
		}
	}
	g.occupied = g.occupy(g.hold)
	g.supply = make([][]Supply, len(r.Shapes))
	g.prefers = make([]bool, len(r.Shapes))
	for s := range r.Shapes {
		g.supply[s] = r.Shapes[s].Nodes
		prefers, estimated := survey(g.supply[s])
		g.prefers[s] = prefers
		g.estimated = g.estimated || estimated && g.count[s] > 0
	}
	return g
}

// survey says of a supply whether some node is preferred over others, and whether some node's
// slots are only a lower bound.
func survey(supply []Supply) (prefers, estimated bool) {
	first := -1
	for n := range supply {
		if supply[n].Slots == nil {
			continue
		}
		if first < 0 {
			first = n
		}
		prefers = prefers || supply[n].Preference != supply[first].Preference
		estimated = estimated || supply[n].Slots.estimated
	}
	return prefers, estimated
}

// occupy marks the domains of nodes; nil if there are none.
func (g *gang) occupy(nodes []int) [][]bool {
	if len(nodes) == 0 {
		return nil
	}
	out := make([][]bool, g.t.Depth()+1)
	for d := range out {
		out[d] = make([]bool, len(g.t.domains[d]))
		for _, n := range nodes {
			out[d][g.t.of[d][n]] = true
		}
	}
	return out
}

// problem is to place so many members of a shape.
func (g *gang) problem(shape, members int) *problem {
	p := &problem{
		t: g.t, supply: g.supply[shape], members: members, required: g.w.required, hold: g.hold, occupied: g.occupied,
		segment: -1, preferences: g.prefers[shape],
	}
	if g.w.segment > 0 { // in the cluster as a whole every segment is in one domain
		p.segment, p.size, p.segmentRequired = g.w.segment, g.r.SegmentSize, g.r.SegmentRequired
	}
	return p
}

func (g *gang) outcomeOf(s *solution) *outcome {
	o := &outcome{nodes: make([][]share, len(g.r.Shapes)), band: s.band, exact: s.exact, fewest: make([]int, g.t.Depth()+1)}
	o.nodes[g.firstShape] = s.nodes
	for d := range o.fewest {
		o.fewest[d] = g.occupiedAt(d)
		if inside := d - s.depth - 1; inside >= 0 && inside < len(s.opened) {
			o.fewest[d] += s.opened[inside]
		}
		o.fewest[d] = max(1, o.fewest[d])
	}
	return o
}

// occupiedAt counts the domains of a depth that bound members are in.
func (g *gang) occupiedAt(depth int) int {
	seen := map[int]bool{}
	for _, m := range g.r.Members {
		if m.Bound {
			seen[g.t.of[depth][m.Node]] = true
		}
	}
	return len(seen)
}

// finish lays the ranks and writes the plan down.
func (g *gang) finish(o *outcome) *Plan {
	t := g.t
	plan := &Plan{
		Nodes: make([]int, len(g.r.Members)), Sets: make([]nvtopo.Mask, len(g.r.Members)),
		Fewest: o.fewest, Band: o.band, Exact: o.exact && !g.estimated, Preferred: true,
	}
	for shape, nodes := range o.nodes {
		seats := g.lay(shape, nodes, o.sets)
		for rank, m := range g.r.Members {
			if !m.Bound && m.Shape == shape {
				plan.Nodes[rank], plan.Sets[rank] = seats[0].node, seats[0].set
				seats = seats[1:]
			}
		}
	}
	for rank, m := range g.r.Members {
		if m.Bound {
			plan.Nodes[rank] = m.Node
		}
	}
	plan.Domains = make([][]int, t.Depth()+1)
	depth := t.Depth() + 1
	for _, n := range plan.Nodes {
		depth = min(depth, t.Common(plan.Nodes[0], n))
		for d := range plan.Domains {
			plan.Domains[d] = append(plan.Domains[d], t.of[d][n])
		}
	}
	for d := range plan.Domains {
		slices.Sort(plan.Domains[d])
		plan.Domains[d] = slices.Compact(plan.Domains[d])
	}
	plan.Level = t.LevelName(depth)
	plan.Preferred = depth >= g.w.preferred
	plan.Crossings = t.Crossings(plan.Nodes)
	if g.w.segment >= 0 {
		plan.SegmentsCut = t.cuts(plan.Nodes, g.w.segment, g.r.SegmentSize)
	}
	return plan
}

// seat is a member's place.
type seat struct {
	node int
	set  nvtopo.Mask
}

// lay returns the seats in the order of ranks: node after node, so that a domain is left once.
// Where segments matter, those that fit one domain come first, and what does not last.
func (g *gang) lay(shape int, nodes []share, given map[seatsKey][]nvtopo.Mask) []seat {
	var whole, rest, here []seat
	flush := func() {
		n := len(here)
		if g.w.segment >= 0 {
			n -= n % g.r.SegmentSize
		}
		whole, rest, here = append(whole, here[:n]...), append(rest, here[n:]...), nil
	}
	for i, s := range nodes {
		if i > 0 && g.w.segment >= 0 && g.t.of[g.w.segment][s.node] != g.t.of[g.w.segment][nodes[i-1].node] {
			flush()
		}
		sets := given[seatsKey{shape, s.node}]
		if given == nil {
			sets = g.supply[shape][s.node].Slots.Sets(s.members)
		}
		for k := range s.members {
			e := seat{node: s.node}
			if sets != nil {
				e.set = sets[k]
			}
			here = append(here, e)
		}
	}
	flush()
	return append(whole, rest...)
}

// unplaceable says how many members fit at most.
func (g *gang) unplaceable(detail string) error {
	depth := g.w.required
	e := &UnplaceableError{Level: g.t.LevelName(depth), Want: len(g.r.Members), Detail: detail}
	var rooms []*problem
	for shape, count := range g.count {
		if count > 0 {
			p := g.problem(shape, count)
			p.load(worstBand)
			rooms = append(rooms, p)
		}
	}
	last := g.t.Len()
	if depth <= g.t.Depth() {
		last = len(g.t.domains[depth])
	}
	for i := range last {
		if have, ok := g.room(rooms, place{depth, i}); ok {
			e.Have = max(e.Have, len(g.r.Members)-g.missing+have)
		}
	}
	return e
}

// room is how many members would fit in a place at the same time, if those of other shapes
// were not there; false if the place does not have all nodes that are held or is nameless.
func (g *gang) room(shapes []*problem, at place) (total int, ok bool) {
	first, end := at.at, at.at+1
	if at.depth <= g.t.Depth() {
		dom := &g.t.domains[at.depth][at.at]
		if at.depth > 0 && dom.Name == "" {
			return 0, false
		}
		first, end = dom.First, dom.End
	}
	for _, p := range shapes {
		if !p.holds(first, end) {
			return 0, false
		}
		switch {
		case at.depth > g.t.Depth():
			total += min(p.members, p.slots[at.at])
		case g.r.MaxPerDomain > 0 && first < end:
			total += min(p.members, g.bounded(p, g.t.of[g.w.spread][first], g.t.of[g.w.spread][end-1]))
		default:
			total += min(p.members, p.capacity[at.depth][at.at])
		}
	}
	return total, true
}

// bounded is how many members fit in domains that take so many each at most.
func (g *gang) bounded(p *problem, first, last int) (total int) {
	for i := first; i <= last; i++ {
		room := g.r.MaxPerDomain
		for _, m := range g.r.Members {
			if m.Bound && g.t.of[g.w.spread][m.Node] == i {
				room--
			}
		}
		total += min(p.capacity[g.w.spread][i], max(0, room))
	}
	return total
}
