// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/pkg/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
)

// TestNodeNaming: each node is named once. A node with several members was named for each of them,
// which nobody could read back.
func TestNodeNaming(t *testing.T) {
	tree, _, err := fabric.NewTree(&fabric.Spec{Nodes: []fabric.NodePath{{Node: "a"}, {Node: "b"}}})
	if err != nil {
		t.Fatal(err)
	}
	a := &Answer{Plan: &fabric.Plan{Nodes: []int{1, 1, 0, 0}}, tree: tree}
	got, err := gangrequest.ParseNodes(gangrequest.FormatNodes(a.Nodes()))
	if diff := cmp.Diff([]string{"b", "a"}, got); diff != "" || err != nil {
		t.Errorf("nodes (-want,+got), error %v:\n%s", err, diff)
	}
}
