// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
)

// TestLocate makes plans on one snapshot after the other: nodes are located once for each list.
func TestLocate(t *testing.T) {
	t.Parallel()
	list := func(names ...string) (out []fwk.NodeInfo) {
		for _, name := range names {
			info := framework.NewNodeInfo()
			info.SetNode(schedtest.Node(name).Obj())
			out = append(out, info)
		}
		return out
	}
	treeOf := func(nodes ...string) *fabric.Tree {
		spec := &fabric.Spec{}
		for _, node := range nodes {
			spec.Nodes = append(spec.Nodes, fabric.NodePath{Node: node})
		}
		tree, _, err := fabric.NewTree(spec)
		if err != nil {
			t.Fatal(err)
		}
		return tree
	}
	first := list("a", "b", "elsewhere")
	p := &Planner{}
	tree, other := treeOf("a", "b", "c"), treeOf("c", "b")
	for _, step := range []struct {
		name  string
		b     *build
		nodes []fwk.NodeInfo
		want  []string // the tree's nodes that are in the list
	}{
		{"a list", &build{tree: tree}, first, []string{"a", "b"}},
		{"the same list", &build{tree: tree}, first, []string{"a", "b"}},
		{"another list, as long", &build{tree: tree}, list("c", "b", "elsewhere"), []string{"b", "c"}},
		{"the first one again", &build{tree: tree}, first, []string{"a", "b"}},
		{"a shorter one", &build{tree: tree}, first[:1], []string{"a"}},
		{"none", &build{tree: tree}, nil, nil},
		{"another tree", &build{tree: other}, first, []string{"b"}},
	} {
		step.b.p, step.b.q = p, &Question{Nodes: step.nodes}
		step.b.locate()
		var got []string
		for node, info := range step.b.infos {
			if info == nil {
				continue
			}
			if name := step.b.tree.Name(node); name != info.Node().Name {
				t.Errorf("%s: node %s of the tree has what %s has", step.name, name, info.Node().Name)
			}
			got = append(got, info.Node().Name)
		}
		slices.Sort(got)
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
	}
}
