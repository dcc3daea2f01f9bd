// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"fmt"
	"strconv"
	"strings"
)

// torn returns an error if the bound members are not all in one domain of the required level, for example
// after node labels changed.
func (g *gang) torn() error {
	t, depth := g.t, g.w.required
	if depth > 0 && len(g.bound) > 0 {
		domains := t.among(depth, g.bound)
		if len(domains) > 1 {
			return g.unplaceable("members have their nodes in " + t.list(depth, domains) + " already")
		}
		if depth <= t.Depth() && t.domains[depth][domains[0]].Name == "" {
			return g.unplaceable(fmt.Sprintf("a member is on node %s, which is in no %s", t.names[g.bound[0]], t.LevelName(depth)))
		}
	}
	if !g.r.SegmentRequired {
		return nil
	}
	for i := range g.segments {
		if s := &g.segments[i]; s.home == apart && len(s.missing) > 0 {
			return g.unplaceable("members of one segment have their nodes in " + t.list(g.w.segment, t.among(g.w.segment, s.nodes)) + " already")
		}
	}
	return nil
}

// list returns the names of places of a depth, joined.
func (t *Tree) list(depth int, domains []int) string {
	var names []string
	for _, i := range domains {
		names = append(names, t.placeName(place{depth, i}))
	}
	return strings.Join(names, " and ")
}

func (t *Tree) placeName(at place) string {
	if at.depth > t.Depth() {
		return t.names[at.at]
	}
	return t.DomainName(at.depth, at.at)
}

// unplaceable returns an error with how many members fit at most, and where.
func (g *gang) unplaceable(detail string) *UnplaceableError {
	e := &UnplaceableError{Level: g.t.LevelName(g.w.required), Want: len(g.r.Members), Detail: detail}
	var parts []*problem
	for i := range g.parts {
		p := g.plain(&g.parts[i])
		p.load(worstBand)
		parts = append(parts, p)
	}
	b := &beside{g.t, g.r, g.w, g.bound}
	e.Have, e.Domain = b.roomiest(func(at place) int { return b.room(parts, at) })
	e.AtMost = g.several()
	e.Unproven = e.AtMost && e.Have >= e.Want
	e.Have = min(e.Have, e.Want-1) // each part may have room alone
	return e
}

// beside computes the room for members in addition to those that are bound.
type beside struct {
	t     *Tree
	r     *Request
	w     wishes
	bound []int // the nodes of bound members
}

// roomiest returns the most members, bound ones included, that fit in one place of the required level,
// and that place.
func (b *beside) roomiest(room func(place) int) (most int, domain string) {
	depth := b.w.required
	last := b.t.Len()
	if depth <= b.t.Depth() {
		last = len(b.t.domains[depth])
	}
	split := depth > 0 && depth <= b.t.Depth() && len(b.t.among(depth, b.bound)) > 1
	for i := range last {
		at := place{depth, i}
		first, end := b.t.nodesOf(at)
		here := 0
		for _, n := range b.bound {
			if n >= first && n < end {
				here++
			}
		}
		if here < len(b.bound) && !split || depth > 0 && depth <= b.t.Depth() && b.t.domains[depth][i].Name == "" {
			continue
		}
		if have := here + room(at); have > most {
			most, domain = have, b.t.placeName(at)
		}
	}
	return most, domain
}

// room returns how many members would fit in a place at the same time, if those of other shapes were
// absent.
func (b *beside) room(parts []*problem, at place) (total int) {
	first, end := b.t.nodesOf(at)
	for _, p := range parts {
		switch members := p.members - p.lacking; {
		case at.depth > b.t.Depth():
			total += min(members, p.slots[at.at])
		case b.r.MaxPerDomain > 0 && first < end:
			total += min(members, b.bounded(p, b.t.of[b.w.spread][first], b.t.of[b.w.spread][end-1]))
		default:
			total += min(members, p.capacity[at.depth][at.at])
		}
	}
	return total
}

// bounded returns how many members fit in a range of domains with at most MaxPerDomain members each.
func (b *beside) bounded(p *problem, first, last int) (total int) {
	for i := first; i <= last; i++ {
		room := b.r.MaxPerDomain
		for _, n := range b.bound {
			if b.t.of[b.w.spread][n] == i {
				room--
			}
		}
		total += min(p.capacity[b.w.spread][i], max(0, room))
	}
	return total
}

// detail returns the constraint other than room that prevents the placement.
func (g *gang) detail() string {
	for i := range g.parts {
		p := g.plain(&g.parts[i])
		if p.load(worstBand); p.blocked >= 0 {
			return "no room beside the members of a segment in " + g.t.placeName(place{g.w.segment, p.blocked})
		}
	}
	switch {
	case g.r.MaxPerDomain > 0:
		return "at most " + count(g.r.MaxPerDomain, "member") + " in one " + g.t.LevelName(g.w.spread)
	case len(g.parts) > 1 && g.parts[0].shape == g.parts[len(g.parts)-1].shape:
		return "not in whole segments"
	case len(g.parts) > 1:
		return "because members ask for different things, and " + g.withoutPlace()
	}
	return ""
}

// withoutPlace returns how many members of a gang of several shapes have no place even alone, or that no place
// was found for all of them together.
func (g *gang) withoutPlace() string {
	alone, at := 0, &beside{g.t, g.r, g.w, g.bound}
	for i := range g.parts {
		p := g.plain(&g.parts[i])
		p.load(worstBand)
		have, _ := at.roomiest(func(in place) int { return at.room([]*problem{p}, in) })
		alone += p.members - max(0, have-len(g.bound))
	}
	switch alone {
	case 0:
		return "no place was found for all of them together"
	case 1:
		return "1 of them has no place even without those that ask for something else"
	}
	return strconv.Itoa(alone) + " of them have no place even without those that ask for something else"
}

func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return strconv.Itoa(n) + " " + what
}
