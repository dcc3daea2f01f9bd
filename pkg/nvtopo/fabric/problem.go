// SPDX-License-Identifier: Apache-2.0

package fabric

import "slices"

// problem is members of one shape to be put into one part of the tree.
type problem struct {
	t         *Tree
	supply    []Supply
	withSlots []int32        // nodes that have slots in the supply, ascending
	closed    []bool         // by node: gets no new member; nil if all may
	floor     int64          // slowest ring that members on a node may have, in kB/s
	changed   map[int]Supply // by node: supply that replaces the shape's
	taken     map[int]int    // by node: slots that other members of the shape have
	members   int
	required  int   // depth of the domain that must contain all members
	label     int   // depth of the domain that must have a name; 0 for none
	hold      []int // nodes that this domain must contain too
	near      []int // nodes to be near to, wherever the domain is
	// occupied marks the domains that have members already, by depth; nil for none. Using them opens no new
	// domain.
	occupied    [][]bool
	scope       place // the part of the tree
	demand      demand
	preferences bool // some node is preferred over others

	most     limits
	band     int
	slots    []int   // by node, in that band
	capacity [][]int // by depth: members that the domains can hold
	loaded   bool
	blocked  int // the domain that has no room for the missing members of its segments; -1 for none
	lacking  int // how many members cannot go there
	work     *workspace
	// unproven reports that finding the fewest domains was somewhere too much work.
	unproven bool
}

// at returns the supply of a node.
func (p *problem) at(node int) *Supply {
	if p.changed != nil {
		if s, ok := p.changed[node]; ok {
			return &s
		}
	}
	return &p.supply[node]
}

// load sets the slots and capacities to those of a band. It reports whether the slots differ from those
// loaded before.
func (p *problem) load(band int) bool {
	t := p.t
	first, end := t.nodesOf(p.scope)
	changed := !p.loaded
	if p.slots == nil {
		p.slots = make([]int, t.Len())
		p.capacity = make([][]int, t.Depth()+1)
		for d := range p.capacity {
			p.capacity[d] = make([]int, len(t.domains[d]))
		}
	}
	p.loaded = true
	plain := p.closed == nil && p.changed == nil && p.taken == nil && p.floor == 0
	for _, n := range between(p.withSlots, first, end) {
		var s int
		if plain {
			s = p.supply[n].count(band)
		} else {
			s = p.count(int(n), band)
		}
		changed = changed || s != p.slots[n]
		p.slots[n] = s
	}
	p.band = band
	if changed {
		p.work.forget(p)
		p.sum()
	}
	return changed
}

// count returns how many more members a node takes in a band.
func (p *problem) count(node, band int) int {
	if p.closed != nil && p.closed[node] {
		return 0
	}
	at := p.at(node)
	s := at.count(band)
	if p.floor > 0 && s > 0 {
		s = at.Slots.onRings(s, p.floor)
	}
	if p.taken != nil {
		s = max(0, s-p.taken[node])
	}
	return s
}

// between returns the part of an ascending list of nodes that is in a range.
func between(nodes []int32, first, end int) []int32 {
	from, _ := slices.BinarySearch(nodes, int32(first))
	to, _ := slices.BinarySearch(nodes, int32(end))
	return nodes[from:to]
}

// nodesOf returns the range of nodes of a place.
func (t *Tree) nodesOf(at place) (first, end int) {
	if at.depth > t.Depth() {
		return at.at, at.at + 1
	}
	d := &t.domains[at.depth][at.at]
	return d.First, d.End
}

// inside returns the range of the domains of a depth that nodes of the scope are in.
func (p *problem) inside(depth int) (first, end int) {
	first, end = p.t.nodesOf(p.scope)
	if first == end {
		return 0, 0
	}
	return p.t.of[depth][first], p.t.of[depth][end-1] + 1
}

// sum computes the capacities of the domains. A domain of the segments' level holds whole segments only,
// if these are required.
func (p *problem) sum() {
	t := p.t
	p.blocked, p.lacking = -1, 0
	for d := t.Depth(); d >= 0; d-- {
		first, end := p.inside(d)
		clear(p.capacity[d][first:end])
		if d == t.Depth() {
			from, to := t.nodesOf(p.scope)
			for _, n := range between(p.withSlots, from, to) {
				p.capacity[d][t.of[d][n]] += p.slots[n]
			}
		} else {
			from, to := p.inside(d + 1)
			for i := from; i < to; i++ {
				p.capacity[d][t.domains[d+1][i].Parent] += p.capacity[d+1][i]
			}
		}
		if p.demand.required && d == p.demand.depth {
			for i := first; i < end; i++ {
				whole, lacking := p.demand.whole(i, p.capacity[d][i])
				p.capacity[d][i] = whole
				if p.lacking += lacking; lacking > 0 {
					p.blocked = i
				}
			}
		}
	}
}
