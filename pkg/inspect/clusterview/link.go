// SPDX-License-Identifier: Apache-2.0

package clusterview

import (
	"cmp"
	"slices"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement"
)

// keepLinked leaves in the view the nodes of which some two GPUs are linked at least so well. Problems
// stay: a node without a graph may have such links.
func (v *View) keepLinked(atLeast nvtopo.Class) {
	v.Nodes = slices.DeleteFunc(v.Nodes, func(n *Node) bool { return n.accel < 0 || !n.Graph().HasLink(atLeast) })
}

// direct is the least link that is no PCIe path, of every vendor.
var direct = nvtopo.Class{Kind: nvtopo.KindNVLink, Lanes: 1}

// joined is how many GPUs of an open node pods could be given with such a link to another one, or with
// any direct link if no class is asked for. There are none where pods hold GPUs of which nobody knows
// which these are.
func (n *Node) joined(atLeast nvtopo.Class) int {
	free := n.FreeMask() &^ n.known.Accels[n.accel].Degraded
	if most := placement.Intact(n.used, n.accel); most > 1 && !n.used.Foreign[n.accel] {
		return min(most, n.Graph().Joined(free, cmp.Or(atLeast, direct)).Len())
	}
	return 0
}
