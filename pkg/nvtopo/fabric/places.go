// SPDX-License-Identifier: Apache-2.0

package fabric

import "github.com/nvtopo/nvtopo/pkg/nvtopo/nodeindex"

// Places returns the positions of n nodes, for the choice of a node for a pod without a gang: a leaf is a
// domain of the innermost level, a spine one of the level around it. A node that is not in the tree is
// alone. It is nil for a tree without levels.
func (t *Tree) Places(n int, name func(i int) string) *nodeindex.Places {
	depth := t.Depth()
	if depth == 0 {
		return nil
	}
	leaves, spines := t.domains[depth], len(t.domains[depth-1])
	p := &nodeindex.Places{Leaf: make([]int, n), Spine: make([]int, len(leaves), len(leaves)+n)}
	for i := range leaves {
		p.Spine[i] = leaves[i].Parent
	}
	for i := range n {
		if node, ok := t.index[name(i)]; ok {
			p.Leaf[i] = t.of[depth][node]
			continue
		}
		p.Leaf[i] = len(p.Spine)
		p.Spine = append(p.Spine, spines)
		spines++
	}
	return p
}
