// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// onNode returns the selector of a volume that can be used on the node.
func onNode(name string) []*v1.NodeSelector {
	return []*v1.NodeSelector{{NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchFields: []v1.NodeSelectorRequirement{
		{Key: metav1.ObjectNameField, Operator: v1.NodeSelectorOpIn, Values: []string{name}},
	}}}}}
}

// TestManyVolumes: a plan for more kinds of members than a bound ignores the location of their volumes,
// and does not fail.
func TestManyVolumes(t *testing.T) {
	const size = maxGangShapes + 20
	var pods []*v1.Pod
	for i := range size {
		pods = append(pods, claiming(i, size))
	}
	want := func(pod *v1.Pod) string { return strings.Replace(pod.Name, "p-", "node-", 1) }
	answer, asked, err := plannedWith(t, size, pods, nil, func(pod *v1.Pod) []*v1.NodeSelector { return onNode(want(pod)) })
	if err != nil {
		t.Fatal(err)
	}
	right := 0
	for _, m := range answer.Members {
		if m.Node == want(m.Pod) {
			right++
		}
	}
	if right < maxVolumeShapes {
		t.Errorf("%d of %d members are where their volumes are, want %d at least", right, size, maxVolumeShapes)
	}
	if asked > size {
		t.Errorf("%d nodes were asked %d times", size, asked)
	}
	_, _, err = plannedWith(t, 1, pods[:1], nil, func(*v1.Pod) []*v1.NodeSelector {
		return []*v1.NodeSelector{{NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchFields: []v1.NodeSelectorRequirement{{Key: "x", Operator: "?"}}}}}}
	})
	if err == nil {
		t.Error("a node affinity that nobody can read is no volume at all")
	}
}
