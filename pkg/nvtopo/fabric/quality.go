// SPDX-License-Identifier: Apache-2.0

package fabric

// The requirement's words for the quality of a placement.
const (
	QualityOneNode    = "optimal"
	QualitySameRack   = "optimal (same rack)"
	QualitySameSwitch = "good (same switch)"
	QualityAdjacent   = "acceptable (adjacent racks)"
	QualitySuboptimal = "suboptimal (distributed)"
)

// Names of the levels that the words refer to.
const (
	rackLevel   = "rack"
	switchLevel = "switch"
)

// Quality returns the requirement's word for how near to each other nodes are. Racks are the domains of
// the level "rack", switches those of the level "switch". In a fabric with neither, the innermost domains
// are used as racks. A node in no named domain shares it with no other.
func (t *Tree) Quality(nodes []int) string {
	if len(distinctNodes(nodes)) < 2 {
		return QualityOneNode
	}
	rack, hasRack := t.DepthOf(rackLevel)
	sw, hasSwitch := t.DepthOf(switchLevel)
	if !hasRack && !hasSwitch {
		rack, hasRack = t.Depth(), t.Depth() > 0
	}
	switch {
	case hasRack && t.spans(nodes, rack) == 1:
		return QualitySameRack
	case hasSwitch && t.spans(nodes, sw) == 1:
		return QualitySameSwitch
	case hasRack && t.spans(nodes, rack) == 2:
		return QualityAdjacent
	}
	return QualitySuboptimal
}

// spans returns the number of domains of a depth that nodes are in.
func (t *Tree) spans(nodes []int, depth int) int {
	seen := map[int]bool{}
	for _, n := range nodes {
		seen[t.of[depth][n]] = true
	}
	return len(seen)
}
