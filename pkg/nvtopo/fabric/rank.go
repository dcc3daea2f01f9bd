// SPDX-License-Identifier: Apache-2.0

package fabric

// Crossings returns how often the ring of the ranks' nodes goes from one innermost domain to another.
func (t *Tree) Crossings(nodes []int) int {
	n := 0
	for i, a := range nodes {
		if t.of[t.Depth()][a] != t.of[t.Depth()][nodes[(i+1)%len(nodes)]] {
			n++
		}
	}
	return n
}
