// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/internal/testobj"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
)

// TestShapeBounded: a node takes one member that keeps apart from the others, and none where it has no
// room. The preference of members for a node is set where there is room.
func TestShapeBounded(t *testing.T) {
	alone := testobj.Pod("p").Containers(v1.Container{Ports: []v1.ContainerPort{{HostPort: 80}}}).Obj()
	prefers := testobj.Pod("p").Obj()
	prefers.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []v1.PreferredSchedulingTerm{{
		Weight: 7, Preference: v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{{Key: "zone", Operator: v1.NodeSelectorOpExists}}},
	}}}}
	for name, tc := range map[string]struct {
		pod            *v1.Pod
		supply         fabric.Supply
		want           int
		wantPreference int64
	}{
		"members that may be together":         {pod: prefers, supply: fabric.Supply{Slots: fabric.Unlinked(3)}, want: 3, wantPreference: 7},
		"members that may not":                 {pod: alone, supply: fabric.Supply{Slots: fabric.Unlinked(3)}, want: 1},
		"one of them, and the node takes none": {pod: alone, supply: fabric.Supply{Slots: fabric.Unlinked(3), Limit: fabric.AtMost(0)}},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := NewShape(tc.pod, asking(1))
			if err != nil {
				t.Fatal(err)
			}
			got := s.Bounded(tc.supply, testobj.Node("n").Label("zone", "a").Obj())
			if got.Members() != tc.want || got.Preference != tc.wantPreference {
				t.Errorf("%d members, preferred by %d; want %d, %d", got.Members(), got.Preference, tc.want, tc.wantPreference)
			}
			if none := s.Bounded(fabric.Supply{}, nil); none.Slots != nil || none.Preference != 0 {
				t.Errorf("a node that has nothing: %+v", none)
			}
		})
	}
}
