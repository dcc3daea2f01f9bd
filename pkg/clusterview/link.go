// SPDX-License-Identifier: Apache-2.0

package clusterview

import "github.com/nvtopo/nvtopo/pkg/nvtopo"

// KeepLinked leaves in the view the nodes of which some two GPUs are linked at least so well, and what of
// the fabric they have. Problems stay: a node without a graph may have such links.
func (v *View) KeepLinked(atLeast nvtopo.Class) {
	var kept []*Node
	v.Supply = newSupply()
	for _, n := range v.Nodes {
		if n.linked(atLeast) {
			kept = append(kept, n)
			v.Supply.add(&n.Supply)
		}
	}
	v.Nodes, v.Models = kept, models(kept)
}

// linked reports whether some two GPUs of the node have such a link or a better one.
func (n *Node) linked(atLeast nvtopo.Class) bool {
	if n.accel < 0 {
		return false
	}
	g := n.Graph()
	for i := range g.Len() {
		for j := range i {
			if g.Link(i, j).Class.AtLeast(atLeast) {
				return true
			}
		}
	}
	return false
}
