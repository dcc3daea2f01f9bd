// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// Bounds on the search for members of several shapes that fit together.
const (
	maxWays    = 64      // ways to fill the nodes so far that are followed
	maxSteps   = 1 << 14 // ways tried in one call of Place before only one is followed
	lastStep   = 1 << 16 // ways tried in one call of Place before the search ends
	maxFilling = 1 << 10 // times that one kind of node is asked what it has beside others
)

// together finds out how many members of several shapes nodes hold at the same time. Each part is placed by
// itself elsewhere, in two orders only.
type together struct {
	g     *gang
	ways  map[place]*way
	known map[string][]filling // of nodes that have the same for each part alone
	asked int                  // of the node whose fillings are computed
	cut   bool                 // not all ways were tried: there may be more room
}

// newTogether is nil where it matters which members are in one domain, and in search of a faster plan.
func newTogether(g *gang) *together {
	if !g.several() || g.faster || g.w.spread >= 0 || g.w.segment >= 0 && g.r.SegmentRequired {
		return nil
	}
	if g.together == nil {
		g.together = &together{g: g, ways: map[place]*way{}, known: map[string][]filling{}}
	}
	return g.together
}

// filling is members that one node holds, in the order in which they are given their GPUs.
type filling struct {
	members []int // by part
	order   []int // of parts
}

// way is how the nodes so far hold members.
type way struct {
	members []int // by part
	node    int
	filling filling
	before  *way
}

// in is a way to put as many members as possible into a place. Nodes that have the same for each part alone
// are taken to have the same for all parts together.
func (x *together) in(at place) *way {
	if known, ok := x.ways[at]; ok {
		return known
	}
	ways := []*way{{members: make([]int, len(x.g.parts))}}
	first, end := x.g.t.nodesOf(at)
	for n := first; n < end && x.lacking(ways[0]) > 0; n++ {
		if x.g.work.waysTried > lastStep {
			x.cut = true
			break
		}
		next := slices.Clip(ways)
		for _, f := range x.fillings(n) {
			for _, w := range ways {
				next = append(next, w.with(n, f, x.g.parts))
			}
		}
		if x.g.work.waysTried += len(next) - len(ways); len(next) > len(ways) {
			ways = x.best(next)
		}
	}
	x.ways[at] = ways[0]
	return ways[0]
}

func (x *together) lacking(w *way) int { return x.g.missing - total(w.members) }

// with is a way on: a node holds no more than is asked.
func (w *way) with(node int, f filling, parts []part) *way {
	out := &way{members: slices.Clone(w.members), node: node, filling: f, before: w}
	for i, n := range f.members {
		out.members[i] = min(w.members[i]+n, len(parts[i].members))
	}
	return out
}

// best keeps the ways that hold most members, and of these that hold no more of any part than another one
// the first.
func (x *together) best(ways []*way) (kept []*way) {
	most := maxWays
	if x.g.work.waysTried > maxSteps {
		most = 1
	}
	slices.SortStableFunc(ways, func(a, b *way) int {
		return cmp.Or(cmp.Compare(total(b.members), total(a.members)), slices.Compare(b.members, a.members))
	})
	for _, w := range ways {
		if slices.ContainsFunc(kept, func(k *way) bool { return covers(k.members, w.members) }) {
			continue
		}
		if len(kept) == most {
			x.cut = true
			break
		}
		kept = append(kept, w)
	}
	return kept
}

// covers reports whether no number is less than that of another list.
func covers(a, b []int) bool {
	for i := range a {
		if a[i] < b[i] {
			return false
		}
	}
	return true
}

// fillings are the most that a node holds.
func (x *together) fillings(node int) []filling {
	g := x.g
	if g.closed != nil && g.closed[node] {
		return nil
	}
	var key []byte
	for i := range g.parts {
		s := &g.r.Shapes[g.parts[i].shape].Nodes[node]
		if key = fmt.Appendf(key, "%d %d,", s.Members(), s.Limit.excluded); s.Slots.fromGraph() {
			key = fmt.Appendf(key, "%p,", s.Slots)
		}
	}
	found, ok := x.known[string(key)]
	if !ok {
		x.asked = 0
		x.fill(node, 0, make([]int, len(g.r.Shapes)), filling{members: make([]int, len(g.parts))}, &found)
		x.g.work.waysTried += x.asked
		x.known[string(key)] = found
	}
	return found
}

// fill goes through the orders of the parts that are not on a node yet, and their numbers of members.
// Beyond the bound it takes as many as possible in the first order.
func (x *together) fill(node int, used nvtopo.Mask, placed []int, f filling, found *[]filling) {
	last := true
	for i := range x.g.parts {
		p := &x.g.parts[i]
		if slices.Contains(f.order, i) {
			continue
		}
		s := x.g.r.Shapes[p.shape].Nodes[node]
		if len(f.order) > 0 {
			s = x.g.r.Remaining(p.shape, node, used, slices.Clone(placed))
		}
		for n := min(s.Members(), len(p.members)); n > 0; n-- {
			last = false
			if x.asked++; x.asked > maxFilling {
				x.cut = true
			}
			next := filling{slices.Clone(f.members), append(slices.Clone(f.order), i)}
			next.members[i] = n
			there := slices.Clone(placed)
			there[p.shape] += n
			x.fill(node, used|union(s.Slots.Sets(n)), there, next, found)
			if x.asked > maxFilling {
				return
			}
		}
	}
	if last && !slices.ContainsFunc(*found, func(o filling) bool { return covers(o.members, f.members) }) {
		*found = append(slices.DeleteFunc(*found, func(o filling) bool { return covers(f.members, o.members) }), f)
	}
}

func union(sets []nvtopo.Mask) (all nvtopo.Mask) {
	for _, set := range sets {
		all |= set
	}
	return all
}

// several reports whether the parts are of several shapes.
func (g *gang) several() bool {
	return slices.ContainsFunc(g.parts, func(p part) bool { return p.shape != g.parts[0].shape })
}
