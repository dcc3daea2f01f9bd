// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"cmp"
	"slices"
	"strings"
)

// Identity is what tells the rank of a member.
type Identity struct {
	Name  string
	Index int // what the job's controller numbered it; negative if it has no number
}

// RankOrder returns the members in the order of their ranks: by index, with or without holes;
// members of one index, and last those without, by name in natural order. So a member that has
// no index, or another's, changes nothing for the others. byName asks for the byte order of
// names, which launchers that sort host names use.
func RankOrder(members []Identity, byName bool) []int {
	order := make([]int, len(members))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		x, y := &members[a], &members[b]
		switch {
		case byName:
			return strings.Compare(x.Name, y.Name)
		case (x.Index < 0) != (y.Index < 0):
			return cmp.Compare(y.Index, x.Index)
		case x.Index >= 0 && x.Index != y.Index:
			return cmp.Compare(x.Index, y.Index)
		}
		return CompareNames(x.Name, y.Name)
	})
	return order
}

// Crossings counts how often the ring of the ranks' nodes goes from one innermost domain to
// another.
func (t *Tree) Crossings(nodes []int) int {
	n := 0
	for i, a := range nodes {
		if t.of[t.Depth()][a] != t.of[t.Depth()][nodes[(i+1)%len(nodes)]] {
			n++
		}
	}
	return n
}
