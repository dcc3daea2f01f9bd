// SPDX-License-Identifier: Apache-2.0

package nvtopo

import "strconv"

// maxInterconnect is the length limit of the published text.
const maxInterconnect = 16

// Interconnect describes the best class of link between two GPUs and, for a fabric, the GPUs that it
// joins: "NV18 all", "NV12 pairs", "NV6 groups of 4", "NV2 some". It is empty below two GPUs.
//
// Within "all" and groups every two GPUs have the best class or a switch between them; "some" is
// everything else. Partitioned GPUs have no links and are left out.
func (g *Graph) Interconnect() string {
	best := g.BestClass()
	text := best.String()
	if !best.IsFabric() {
		return text
	}
	shape := g.fabricShape(best)
	if shape == "" {
		return text
	}
	if whole := text + " " + shape; len(whole) <= maxInterconnect {
		return whole
	}
	return text + " groups" // all others are short
}

// BestClass returns the best class of link between two GPUs, the zero class below two.
func (g *Graph) BestClass() (best Class) {
	for i := range g.Len() {
		for j := range i {
			if c := g.Link(i, j).Class; c.AtLeast(best) {
				best = c
			}
		}
	}
	return best
}

// fabricShape describes the groups of unpartitioned GPUs that the fabric joins; empty if it joins none.
func (g *Graph) fabricShape(best Class) string {
	whole, least, most := 0, 0, 0 // least and most GPUs of a group
	for i := range g.Len() {
		if g.GPUs[i].MIG {
			continue
		}
		whole++
		group := g.fabricPeers(i)
		if !g.evenly(i, group, best) {
			return "some"
		}
		if n := group.Len(); n > 1 {
			if least == 0 || n < least {
				least = n
			}
			most = max(most, n)
		}
	}
	switch {
	case most == 0:
		return ""
	case least < most:
		return "groups"
	case most == whole:
		return "all"
	case most == 2:
		return "pairs"
	}
	return "groups of " + strconv.Itoa(most)
}

// evenly reports whether the GPUs of a group have the same peers, and one of them the best links to all.
func (g *Graph) evenly(i int, group Mask, best Class) bool {
	for _, j := range group.Positions() {
		if g.fabricPeers(j) != group {
			return false
		}
		if l := g.Link(i, j); i != j && group.Len() > 2 && l.Class != best && !l.Switched {
			return false
		}
	}
	return true
}

// fabricPeers returns a GPU and those that the fabric joins it to, without partitioned ones.
func (g *Graph) fabricPeers(i int) Mask {
	peers := Mask(1) << i
	for j := range g.Len() {
		if j != i && !g.GPUs[j].MIG && g.Link(i, j).Class.IsFabric() {
			peers |= 1 << j
		}
	}
	return peers
}
