// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"cmp"
	"slices"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// gang is a request being planned.
type gang struct {
	t *Tree
	r *Request
	w wishes

	most      limits
	parts     []part // those of the largest members first
	missing   int    // members without a node
	bound     []int  // nodes of bound members
	near      []int  // nodes to be near to
	occupied  [][]bool
	prefers   []bool    // by shape: some node is preferred
	hardware  bool      // for some shape a node's hardware is preferred
	estimated bool      // some node's slots are only a lower bound
	segments  []segment // with all their members

	exclusions

	together *together // results for parts of several shapes, kept
	work     *workspace
}

// exclusions restrict a plan that must be faster than another one to other nodes and rings.
type exclusions struct {
	closed []bool // by node, includes the tree's closed ones; nil if all may get members
	floor  int64  // no ring of members on a node may be slower, in kB/s
	tries  *int   // plans left in search of a faster one
	faster bool   // this gang is a search for a faster plan
}

// part is members without a node that are placed at one time: all those of a shape, except for segments
// that lack members.
type part struct {
	shape    int
	members  []int      // as numbers in the request
	segments []*segment // their segments; nil if all members are alike
	together bool       // in one domain of the segments' level
}

// outcome is the nodes of the members without a node.
type outcome struct {
	nodes  [][]share // by part
	band   int
	exact  bool
	fewest []int // by depth
	opened []int // new domains by level inside the place; of a gang of several parts
	// sets are the members' GPUs; nil if nodes still have their initial supply.
	sets map[seatsKey][]nvtopo.Mask
}

func newGang(t *Tree, r *Request, w wishes, most limits, work *workspace) *gang {
	g := &gang{t: t, r: r, w: w, most: most, near: r.Near, exclusions: exclusions{closed: t.closed, tries: new(maxFaster)}, work: work}
	byShape := make([][]int, len(r.Shapes))
	for i, m := range r.Members {
		if m.Bound {
			g.bound = append(g.bound, m.Node)
		} else {
			byShape[m.Shape] = append(byShape[m.Shape], i)
			g.missing++
		}
	}
	g.occupied = g.occupy(slices.Concat(g.bound, g.near))
	if w.segment >= 0 {
		g.segments = g.readSegments()
	}
	g.prefers = make([]bool, len(r.Shapes))
	for s, members := range byShape {
		if len(members) == 0 {
			continue
		}
		r.Shapes[s].list(work)
		prefers, hardware, estimated := r.Shapes[s].survey()
		g.prefers[s] = prefers
		g.hardware = g.hardware || hardware
		g.estimated = g.estimated || estimated
		if w.segment > 0 && s == w.segmented {
			g.parts = append(g.parts, g.segmentParts()...)
		} else { // in the cluster as a whole every segment is in one domain
			g.parts = append(g.parts, part{shape: s, members: members})
		}
	}
	slices.SortStableFunc(g.parts, func(a, b part) int {
		return cmp.Or(cmp.Compare(r.Shapes[b.shape].GPUs, r.Shapes[a.shape].GPUs), cmp.Compare(len(b.members), len(a.members)))
	})
	return g
}

// segmentParts returns the parts of the members that are in segments. A segment that must be whole, but
// lacks members and has no home, is a part of its own: the search handles full segments only.
func (g *gang) segmentParts() []part {
	full := part{shape: g.w.segmented, segments: []*segment{}}
	var out []part
	for i := range g.segments {
		s := &g.segments[i]
		switch {
		case len(s.missing) == 0:
		case g.r.SegmentRequired && s.home == noHome && len(s.missing) < g.r.SegmentSize:
			out = append(out, part{shape: g.w.segmented, members: s.missing, together: true})
		default:
			full.members = append(full.members, s.missing...)
			full.segments = append(full.segments, s)
		}
	}
	if len(full.members) > 0 {
		out = append(out, full)
	}
	return out
}

// list sets the list of nodes with slots, if it is not set yet.
func (s *Shape) list(work *workspace) {
	if s.withSlots != nil {
		return
	}
	s.withSlots = work.list(len(s.Nodes))
	for n := range s.Nodes {
		if s.Nodes[n].Slots != nil {
			s.withSlots = append(s.withSlots, int32(n))
		}
	}
}

// survey reports whether some node is preferred over others, whether some is for its hardware, and
// whether some node's slots are only a lower bound.
func (s *Shape) survey() (prefers, hardware, estimated bool) {
	if len(s.withSlots) == 0 {
		return false, false, false
	}
	first := &s.Nodes[s.withSlots[0]]
	for _, n := range s.withSlots {
		supply := &s.Nodes[n]
		prefers = prefers || supply.Preference != first.Preference
		hardware = hardware || supply.Hardware != first.Hardware
		estimated = estimated || supply.Slots.estimated
	}
	return prefers, hardware, estimated
}

// occupy marks the domains of nodes, by depth; nil if there are none.
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

// plain returns the problem of placing a part by itself, not restricted to one domain.
func (g *gang) plain(p *part) *problem {
	shape := &g.r.Shapes[p.shape]
	return &problem{
		t: g.t, supply: shape.Nodes, withSlots: shape.withSlots, work: g.work, closed: g.closed, floor: g.floor, members: len(p.members), required: g.w.required, label: g.w.required,
		hold: g.bound, near: g.near, occupied: g.occupied, demand: g.demandOf(p.segments), preferences: g.prefers[p.shape],
		most: g.most, blocked: -1,
	}
}

// problem returns the problem of placing a part by itself, in one domain if it must be.
func (g *gang) problem(p *part) *problem {
	out := g.plain(p)
	if p.together && g.w.segment > g.w.required {
		// Its domain need not be that of the bound members, but must be inside the required one.
		if g.w.required > 0 && len(g.bound) > 0 {
			out.scope = place{g.w.required, g.t.of[g.w.required][g.bound[0]]}
		}
		out.required, out.hold, out.near = g.w.segment, nil, slices.Concat(g.bound, g.near)
	}
	return out
}

func (g *gang) outcomeOf(s *solution) *outcome {
	return &outcome{nodes: [][]share{s.nodes}, band: s.band, exact: s.exact, fewest: g.fewestOf(s.outer, s.fewest)}
}

// fewestOf adds the domains of bound members to new ones inside a depth.
func (g *gang) fewestOf(outer int, opened []int) []int {
	out := make([]int, g.t.Depth()+1)
	for d := range out {
		if len(g.near) > 0 {
			break // the fewest domains are not those of the members alone
		}
		out[d] = len(g.t.among(d, g.bound))
		if inside := d - outer - 1; inside >= 0 && inside < len(opened) {
			out[d] += opened[inside]
		}
		out[d] = max(1, out[d])
	}
	return out
}

// among returns the domains of a depth that nodes are in, in their order; below the innermost level the
// nodes.
func (t *Tree) among(depth int, nodes []int) []int {
	out := slices.Clone(nodes)
	if depth <= t.Depth() {
		for i, n := range nodes {
			out[i] = t.of[depth][n]
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// finish assigns the ranks and builds the plan.
func (g *gang) finish(o *outcome) *Plan {
	t := g.t
	plan := &Plan{
		Nodes: make([]int, len(g.r.Members)), Sets: make([]nvtopo.Mask, len(g.r.Members)),
		Fewest: o.fewest, Band: o.band, Exact: o.exact && !g.estimated,
	}
	for i, m := range g.r.Members {
		if m.Bound {
			plan.Nodes[i] = m.Node
		}
	}
	g.lay(plan, o)
	depth := t.Depth() + 1
	for _, n := range plan.Nodes {
		depth = min(depth, t.Common(plan.Nodes[0], n))
	}
	for d := range t.Depth() + 1 {
		plan.Domains = append(plan.Domains, t.among(d, plan.Nodes))
	}
	plan.Level = t.LevelName(depth)
	plan.Preferred = depth >= g.w.preferred
	plan.Crossings = t.Crossings(plan.Nodes)
	for _, s := range g.segments {
		nodes := slices.Clone(s.nodes)
		for _, m := range s.missing {
			nodes = append(nodes, plan.Nodes[m])
		}
		if len(t.among(g.w.segment, nodes)) > 1 {
			plan.SegmentsCut++
		}
	}
	return plan
}
