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

// RankOrder returns the members in the order of their ranks: by index if all have one and none
// has another's, by name in natural order otherwise. byName asks for the byte order of names,
// which launchers that sort host names use.
func RankOrder(members []Identity, byName bool) []int {
	order := make([]int, len(members))
	seen := map[int]bool{}
	indexed := true
	for i, m := range members {
		order[i] = i
		indexed = indexed && m.Index >= 0 && !seen[m.Index]
		seen[m.Index] = true
	}
	slices.SortStableFunc(order, func(a, b int) int {
		x, y := &members[a], &members[b]
		switch {
		case byName:
			return strings.Compare(x.Name, y.Name)
		case indexed:
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

// cuts counts the segments of ranks that are not in one domain of a depth.
func (t *Tree) cuts(nodes []int, depth, size int) int {
	n := 0
	for segment := range slices.Chunk(nodes, size) {
		if slices.ContainsFunc(segment, func(a int) bool { return t.of[depth][a] != t.of[depth][segment[0]] }) {
			n++
		}
	}
	return n
}
