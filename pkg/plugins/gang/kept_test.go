// SPDX-License-Identifier: Apache-2.0

package gang_test

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/internal/testrig"
	"github.com/nvtopo/nvtopo/pkg/gangrequest"
)

// TestTheDevicesOfAMemberThatDiedAreKept has a member with four GPUs of a node die. Others may use
// the four beside them, and all once the replacement has a place.
func TestTheDevicesOfAMemberThatDiedAreKept(t *testing.T) {
	t.Parallel()
	r := newRigWith(t, `{"keepFreed": "10m"}`, 2)
	on := func(node string) func(*v1.Pod) { return func(pod *v1.Pod) { pod.Spec.NodeName = node } }
	for i, gpus := range []int{1, 4} {
		r.place(r.pod("runs", 2, i, gpus, nil, on(fmt.Sprintf("node-0-%d", i))))
	}
	pod := func(name string, gpus int64, change func(*v1.Pod)) *v1.Pod {
		pod := single(name, time.Hour, change)
		for _, list := range []v1.ResourceList{pod.Spec.Containers[0].Resources.Requests, pod.Spec.Containers[0].Resources.Limits} {
			list[gpuResource] = *resource.NewQuantity(gpus, resource.DecimalSI)
		}
		return pod
	}
	if err := r.client.CoreV1().Pods("default").Delete(t.Context(), "runs-1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	r.leave()
	testrig.Soon(t, "the place is kept", func() bool { return len(r.state.Closed().Kept()["node-0-1"]) == 1 })

	both := []string{"node-0-0", "node-0-1"}
	r.wantNodes("a pod that fits beside it", pod("beside", 4, nil), both, "")
	r.wantNodes("one with more GPUs", pod("more", 5, nil), both[:1], "nvidia.com/gpu of the node is kept for gang default/runs")
	r.wantNodes("one of higher priority", pod("important", 5, func(pod *v1.Pod) { pod.Spec.Priority = new(int32(1)) }), both, "")
	r.wantNodes("an older one", pod("older", 5, func(pod *v1.Pod) { pod.CreationTimestamp = metav1.Time{} }), both, "")
	near := func(pod *v1.Pod) { pod.Annotations = map[string]string{gangrequest.NearKey: "runs"} }
	r.wantNodes("one with more GPUs that wants to be near", pod("near", 5, near), both[:1], "kept for gang default/runs")

	other := r.pod("other", 1, 0, 8, nil, func(pod *v1.Pod) { pod.CreationTimestamp = metav1.NewTime(time.Now()) })
	r.known(other)
	if c := r.cycle(other); c.node != "" {
		t.Errorf("another gang is planned on %s", c.node)
	}
	r.place(r.pod("runs", 2, 1, 4, nil, func(pod *v1.Pod) { pod.Name, pod.UID, pod.Spec.NodeName = "runs-1", "runs-1-again", "node-0-0" }))
	testrig.Soon(t, "nothing is kept", func() bool { return !r.state.Closed().Any() })
	testrig.Soon(t, "the other gang is planned there", func() bool { return r.cycle(other).node == "node-0-1" })
}
