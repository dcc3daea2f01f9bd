// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"testing"

	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
)

// TestNodeNaming: each node is named once. Before, a node with several members was named for each of
// them.
func TestNodeNaming(t *testing.T) {
	tree, _, err := fabric.NewTree(&fabric.Spec{Nodes: []fabric.NodePath{{Node: "a"}, {Node: "b"}}})
	if err != nil {
		t.Fatal(err)
	}
	a := &Answer{Plan: &fabric.Plan{Nodes: []int{1, 1, 0, 0}}, tree: tree}
	if got := gangrequest.FormatNodes(a.Nodes()); got != "b,a" {
		t.Errorf("nodes %q, want b,a", got)
	}
}
