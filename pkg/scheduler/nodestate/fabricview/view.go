// SPDX-License-Identifier: Apache-2.0

package fabricview

import (
	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
)

// View is the fabric at one moment.
type View struct {
	Tree     *fabric.Tree   // without levels where the cluster has none
	Revision uint64         // greater in each later View
	depths   map[string]int // node label -> depth of its level
}

// NodeOf returns the node's number in the tree. ok is false for a node that came later.
func (v *View) NodeOf(name string) (node int, ok bool) { return v.Tree.Node(name) }

// HasLevels reports whether the fabric has any level above the nodes.
func (v *View) HasLevels() bool { return v.Tree.Depth() > 0 }

// DepthOf returns the depth of a level, named as in the ClusterTopology or by its node label.
func (v *View) DepthOf(level string) (depth int, ok bool) {
	if depth, ok = v.Tree.DepthOf(level); ok {
		return depth, true
	}
	if level == v1.LabelHostname {
		return v.Tree.Depth() + 1, true
	}
	depth, ok = v.depths[level]
	return depth, ok
}

// LabelOf returns the node label of the level at a depth; empty if it has none.
func (v *View) LabelOf(depth int) string {
	for label, at := range v.depths {
		if at == depth {
			return label
		}
	}
	return ""
}
