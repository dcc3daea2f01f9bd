// SPDX-License-Identifier: Apache-2.0

package debug

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestPromises: pods are shown with their assumed allocations.
func TestPromises(t *testing.T) {
	all := promises{"u": {UID: "u", Node: "n", Annotations: map[string]string{"k": "v"}}}
	for name, tc := range map[string]struct {
		uid       types.UID
		node      string
		wantNode  string
		wantNotes map[string]string
	}{
		"on a pod that does not show it yet": {uid: "u", wantNode: "n", wantNotes: map[string]string{"a": "b", "k": "v"}},
		"not on one that is bound":           {uid: "u", node: "m", wantNode: "m", wantNotes: map[string]string{"a": "b"}},
		"not on another":                     {uid: "w", wantNotes: map[string]string{"a": "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &v1.Pod{}
			pod.UID, pod.Spec.NodeName, pod.Annotations = tc.uid, tc.node, map[string]string{"a": "b"}
			before := pod.DeepCopy()
			got := all.show(pod)
			if got.Spec.NodeName != tc.wantNode {
				t.Errorf("node %q, want %q", got.Spec.NodeName, tc.wantNode)
			}
			if diff := cmp.Diff(tc.wantNotes, got.Annotations); diff != "" {
				t.Errorf("annotations (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, pod); diff != "" {
				t.Errorf("the pod was changed (-before +after):\n%s", diff)
			}
		})
	}
	var none promises
	if pod := (&v1.Pod{}); none.show(pod) != pod {
		t.Error("a pod without a promise is another")
	}
}
