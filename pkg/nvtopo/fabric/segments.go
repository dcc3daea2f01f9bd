// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"cmp"
	"slices"
)

// segment is members of a gang that belong into one domain of the segments' level.
type segment struct {
	missing []int // members without a node, as numbers in the request
	nodes   []int // of the bound members
	home    int   // the domain of these nodes; noHome, or apart
}

// Values of home without one domain.
const (
	noHome = -1 // no member has a node
	apart  = -2 // its nodes are in several domains
)

// readSegments returns the segments, in the order of their ranks.
func (g *gang) readSegments() []segment {
	var out []segment
	rank := 0 // among the members of the shape
	for i, m := range g.r.Members {
		if m.Shape != g.w.segmented {
			continue
		}
		if rank%g.r.SegmentSize == 0 {
			out = append(out, segment{home: noHome})
		}
		rank++
		s := &out[len(out)-1]
		if !m.Bound {
			s.missing = append(s.missing, i)
			continue
		}
		s.nodes = append(s.nodes, m.Node)
		switch at := g.t.of[g.w.segment][m.Node]; s.home {
		case noHome:
			s.home = at
		case at:
		default:
			s.home = apart
		}
	}
	return out
}

// demand is the segments' need for slots in the domains of their level.
type demand struct {
	depth, size int // of a segment; size 0: there are none
	required    bool
	free        int // segments that may be in any domain
	// homes holds, for each domain in which segments have members already, the missing members: of the
	// segment that lacks fewest, of the two that lack fewest, and so on.
	homes map[int][]int32
}

func (g *gang) demandOf(segments []*segment) demand {
	if segments == nil {
		return demand{}
	}
	d := demand{depth: g.w.segment, size: g.r.SegmentSize, required: g.r.SegmentRequired}
	byNeed := slices.Clone(segments)
	slices.SortStableFunc(byNeed, func(a, b *segment) int { return cmp.Compare(len(a.missing), len(b.missing)) })
	for _, s := range byNeed {
		switch s.home {
		case apart:
		case noHome:
			d.free++
		default:
			if d.homes == nil {
				d.homes = map[int][]int32{}
			}
			h := d.homes[s.home]
			d.homes[s.home] = append(h, last(h)+int32(len(s.missing)))
		}
	}
	return d
}

// whole returns how many of the slots of a domain can be used if segments must be whole, and how many
// members of segments at home in the domain lack a slot.
func (d *demand) whole(domain, slots int) (whole, lacking int) {
	home := int(last(d.homes[domain]))
	if slots < home {
		return slots, home - slots
	}
	return home + (slots-home)/d.size*d.size, 0
}

// last returns the members missing in a domain in all.
func last(homes []int32) int32 {
	if len(homes) == 0 {
		return 0
	}
	return homes[len(homes)-1]
}

// unmet returns how many segments of a domain are not whole while left of their members have no place.
func unmet(homes []int32, left int32) (n int) {
	for i := len(homes) - 1; i >= 0 && homes[i] > last(homes)-left; i-- {
		n++
	}
	return n
}
