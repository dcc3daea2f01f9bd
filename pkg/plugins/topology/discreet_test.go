// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// relatedTo remembers the object that the last event refers to.
type relatedTo struct{ object runtime.Object }

func (r *relatedTo) Eventf(_, related runtime.Object, _, _, _, _ string, _ ...any) {
	r.object = related
}

// TestDiscreetEvents: an event on a victim refers to the pod that it is evicted for only if both are of
// one namespace.
func TestDiscreetEvents(t *testing.T) {
	pod := func(namespace string) *v1.Pod {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "p"}}
	}
	tests := map[string]struct {
		related runtime.Object
		want    bool
	}{
		"of its namespace":     {pod("ns"), true},
		"of another namespace": {pod("other"), false},
		"of none":              {nil, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := &relatedTo{}
			discreetRecorder{got}.Eventf(pod("ns"), tc.related, v1.EventTypeNormal, "Preempted", "Preempting", "by %s", "x")
			if has := got.object != nil; has != tc.want {
				t.Errorf("it refers to %v, want an object: %t", got.object, tc.want)
			}
		})
	}
}
