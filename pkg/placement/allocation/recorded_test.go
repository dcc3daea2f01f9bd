// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRecorded(t *testing.T) {
	const resource = "nvidia.com/gpu"
	a := &Allocation{Containers: []Container{
		{Name: "copy", Resource: resource, Init: true, GPUs: []string{"GPU-b"}},
		{Name: "train", Resource: resource, GPUs: []string{"GPU-b", "GPU-a"}},
	}}
	for name, tc := range map[string]struct {
		container, resource string
		ids                 []string
		wantChosen          []string
		wantEqual           bool
	}{
		"what was chosen, in another order":             {"train", resource, []string{"GPU-a", "GPU-b"}, []string{"GPU-a", "GPU-b"}, true},
		"one GPU less":                                  {"train", resource, []string{"GPU-a"}, []string{"GPU-a", "GPU-b"}, false},
		"another GPU":                                   {"train", resource, []string{"GPU-a", "GPU-c"}, []string{"GPU-a", "GPU-b"}, false},
		"an init container has another GPU of the pod":  {"copy", resource, []string{"GPU-a"}, []string{"GPU-b"}, true},
		"an init container has a GPU of nobody":         {"copy", resource, []string{"GPU-c"}, []string{"GPU-b"}, false},
		"an init container has more than it asked for":  {"copy", resource, []string{"GPU-a", "GPU-b"}, []string{"GPU-b"}, false},
		"a container for which nothing was chosen":      {"sidecar", resource, []string{"GPU-a"}, nil, false},
		"a resource of which nothing was chosen for it": {"train", "example.com/npu", []string{"NPU-0"}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			chosen, equal := a.Recorded(tc.container, tc.resource, tc.ids)
			if diff := cmp.Diff(tc.wantChosen, chosen); diff != "" || equal != tc.wantEqual {
				t.Errorf("equal is %v, want %v; chosen (-want,+got)\n%s", equal, tc.wantEqual, diff)
			}
		})
	}
}
