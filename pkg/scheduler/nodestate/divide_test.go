// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement"
)

// TestInitContainers: init containers prepare the GPUs of the next containers.
func TestInitContainers(t *testing.T) {
	r := newTestEnv(t, "dgx1-v100")
	pod := schedtest.Pod("p").GPUs(2).Obj()
	pod.Spec.Containers = append(pod.Spec.Containers, container("second", 4))
	pod.Spec.InitContainers = []v1.Container{container("one", 1), container("two", 2)}
	info, l := r.view(t)
	a, reason := r.Allocations.Assume(demandOf(t, pod), pod, info, l)
	if reason != placement.Fits {
		t.Fatal(reason)
	}
	parts := map[string]nvtopo.Mask{}
	for i, p := range r.positions(a) {
		parts[a.Containers[i].Name] = nvtopo.MaskOf(p...)
	}
	if parts["two"] != parts["main"] || parts["one"]&^parts["two"] != 0 {
		t.Errorf("init containers get %v and %v, want the second to have the first container's %v and the first one of them",
			parts["one"].Positions(), parts["two"].Positions(), parts["main"].Positions())
	}
}
