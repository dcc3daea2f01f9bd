// SPDX-License-Identifier: Apache-2.0

package clustertopology

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
)

func TestLevelAdvice(t *testing.T) {
	rack := func(name, value string) Node { return Node{Name: name, Labels: map[string]string{RackLabel: value}} }
	bare := []Node{{Name: "a"}, {Name: "b"}}
	given := &v1alpha1.ClusterTopology{Spec: v1alpha1.ClusterTopologySpec{Levels: []v1alpha1.FabricLevel{level("rack", RackLabel)}}}
	tests := map[string]struct {
		ct          *v1alpha1.ClusterTopology
		nodes       []Node
		wish        string
		wantMissing string // where the level is not there
		wantLabels  string // where it is
	}{
		"racks, and no node has a label": {
			nodes: bare, wish: "rack",
			wantMissing: "no node has the label topology.kubernetes.io/rack, or the ClusterTopology leaves it out: nvtopo fabric label --fabric FILE --apply writes it",
		},
		"a wrong name, and no node has a label": {
			nodes: bare, wish: "racks",
			wantMissing: "no node has the label of any level, such as topology.kubernetes.io/rack: nvtopo fabric label --fabric FILE --apply writes them",
		},
		"a wrong name": {nodes: []Node{rack("a", "r1"), rack("b", "r2")}, wish: "racks", wantMissing: "it has rack; correct the value"},
		"racks of a ClusterTopology, and no node has a label": {
			ct: given, nodes: bare, wish: "rack", wantLabels: "no node has the label topology.kubernetes.io/rack: nvtopo fabric label --fabric FILE --apply writes it",
		},
		"one node has no label": {
			nodes: []Node{rack("a", "r1"), rack("b", "r2"), {Name: "c"}}, wish: "rack",
			wantLabels: "of 3 nodes 1 lack the label topology.kubernetes.io/rack: nvtopo fabric label --fabric FILE --apply writes it",
		},
		"all have one": {nodes: []Node{rack("a", "r1"), rack("b", "r2")}, wish: "rack"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			tree, _ := Tree(tc.ct, tc.nodes)
			depth, ok := tree.DepthOf(tc.wish)
			missing, labels := "", ""
			if ok {
				labels = MissingLabels(tree, depth, RackLabel)
			} else {
				missing = MissingLevel(tree, tc.wish)
			}
			if diff := cmp.Diff([]string{tc.wantMissing, tc.wantLabels}, []string{missing, labels}); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}
