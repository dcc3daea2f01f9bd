// SPDX-License-Identifier: Apache-2.0

package gangrequest

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
)

// TestMixedModels: whether members that request the same GPUs may get them of several models, according to
// the PodGroup, or else the first pod that has the annotation.
func TestMixedModels(t *testing.T) {
	says := func(name, value string) *v1.Pod {
		return member(name, func(p *v1.Pod) { p.Annotations = map[string]string{MixedModelsKey: value} })
	}
	tests := map[string]struct {
		group texts
		pods  []*v1.Pod
		want  bool
	}{
		"nobody says anything":          {pods: []*v1.Pod{member("a"), member("b")}},
		"a pod says so":                 {pods: []*v1.Pod{member("a"), says("b", "true")}, want: true},
		"the first pod that says it":    {pods: []*v1.Pod{says("a", "false"), says("b", "true")}},
		"the PodGroup before the pods":  {group: texts{MixedModelsKey: "true"}, pods: []*v1.Pod{says("a", "false")}, want: true},
		"the PodGroup against the pods": {group: texts{MixedModelsKey: "false"}, pods: []*v1.Pod{says("a", "true")}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			g := Read(groupKey, podGroup(2, tc.group), tc.pods)
			r := &fabric.Request{Shapes: []fabric.Shape{{Kind: 1}}}
			g.Wishes.Apply(r)
			if mixed := r.Shapes[0].Kind == 0; g.Err != nil || g.Wishes.MixedModels != tc.want || mixed != tc.want {
				t.Errorf("%v, mixed %v, kind %d, want mixed %v", g.Err, g.Wishes.MixedModels, r.Shapes[0].Kind, tc.want)
			}
		})
	}
}
