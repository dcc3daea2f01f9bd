// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestForeignKeys: the keys of other systems are kept as they were.
func TestForeignKeys(t *testing.T) {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u", ResourceVersion: "7", Annotations: map[string]string{
		GPUIDsKey: "x", GPUIDsKey + ".old": "x", CPUSetKey: "0-1", "mine": "y",
	}}}
	if HasAliases(pod) {
		t.Error("the pod has none of the other systems' keys")
	}
	body, err := CorrectionBody(pod, map[string]string{GPUIDsKey: "z"})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"metadata":{"uid":"u","resourceVersion":"7","annotations":{"nvtopo.dev/cpuset":null,"nvtopo.dev/gpu-ids":"z","nvtopo.dev/gpu-ids.old":null}}}`
	if diff := cmp.Diff(want, string(body)); diff != "" {
		t.Errorf("patch (-want,+got):\n%s", diff)
	}
	pod.Annotations[NUMANodeAlias] = "0"
	if !HasAliases(pod) {
		t.Error("the pod has one of the other systems' keys")
	}
}

// TestChoiceReplacement: an allocation removes the annotations of an earlier attempt.
func TestChoiceReplacement(t *testing.T) {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u", ResourceVersion: "7", Annotations: map[string]string{
		GPUIDsKey + ".old": "x", GPUIDsAlias: "x", "mine": "y",
	}}}
	tests := map[string]struct {
		aliases bool
		want    string
	}{
		"without the keys of other systems": {false, `{"metadata":{"uid":"u","annotations":{"nvtopo.dev/allocation":"a","nvtopo.dev/cpuset":null,"nvtopo.dev/decision":null,` +
			`"nvtopo.dev/gpu-ids":null,"nvtopo.dev/gpu-ids.old":null,"nvtopo.dev/gpu-indices":null,"nvtopo.dev/link-class":null,` +
			`"nvtopo.dev/numa-node":null,"nvtopo.dev/ring-bandwidth":null}},"spec":{"nodeName":null}}`},
		"with them": {true, `{"metadata":{"uid":"u","annotations":{"nvtopo.dev/allocation":"a","nvtopo.dev/cpuset":null,"nvtopo.dev/decision":null,` +
			`"nvtopo.dev/gpu-ids":null,"nvtopo.dev/gpu-ids.old":null,"nvtopo.dev/gpu-indices":null,"nvtopo.dev/link-class":null,` +
			`"nvtopo.dev/numa-node":null,"nvtopo.dev/ring-bandwidth":null,"scheduling.k8s.io/gpu-ids":null,"scheduling.k8s.io/numa-node":null}},"spec":{"nodeName":null}}`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			body, err := ChoiceBody(pod, map[string]string{Key: "a"}, tc.aliases)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, string(body)); diff != "" {
				t.Errorf("patch (-want,+got):\n%s", diff)
			}
		})
	}
}
