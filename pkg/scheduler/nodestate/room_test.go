// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/placement"
)

// TestRoomNotices: only events that leave room are reported. Before, heartbeats of nodes and each bound
// pod caused all waiting gangs to be planned again.
func TestRoomNotices(t *testing.T) {
	r := newTestEnv(t, "dgx1-v100")
	info, l := r.view(t)
	told := [2]int{}
	for i := range told {
		r.Changes.OnRoom(func() { told[i]++ })
	}
	pod := schedtest.Pod("p").GPUs(2).Obj()
	bound := on(t, r.State, schedtest.Pod("q").GPUs(1).Obj(), "n", 4)
	chosen := schedtest.Pod("r").GPUs(1).Obj()
	reserve := func() {
		if _, reason := r.Allocations.Assume(demandOf(t, chosen), chosen, info, l); reason != placement.Fits {
			t.Fatalf("Reserve: %v", reason)
		}
	}
	carriedOut := func() {
		reserve()
		after := chosen.DeepCopy()
		after.Spec.NodeName, after.ResourceVersion = "n", "2"
		annotations, err := r.Nodes.Annotations(r.Binder.Attempt(chosen.UID, "n").Pending(), false)
		if err != nil {
			t.Fatal(err)
		}
		after.Annotations = annotations
		r.Binder.Attempt(chosen.UID, "n").BindingBegan()
		r.handlers.podHandler().OnUpdate(chosen, after)
	}
	unhealthy := func(s *v1alpha1.NodeGPUTopologyStatus) { s.GPUHealth[1].Healthy = false }
	healthy := func(s *v1alpha1.NodeGPUTopologyStatus) { s.GPUHealth[1].Healthy = true }
	graph := func(version string, change func(*v1alpha1.NodeGPUTopologyStatus)) func() {
		return func() {
			obj := topologyOf(t, "n", "dgx1-v100")
			obj.ResourceVersion = version
			change(&obj.Status)
			r.Nodes.topologies.Handler(r.Changes.passOn(t.Context())).OnUpdate(nil, obj)
		}
	}
	for _, tc := range []struct {
		what   string
		change func()
		want   bool
	}{
		{"a heartbeat of a node", func() { r.handlers.nodeHandler().OnUpdate(info.Node(), info.Node()) }, false},
		{"a plan", func() { r.mustPlan(t, l, member(t, pod, "n", 0, 1)) }, false},
		{"its end", func() { r.GangReserver.EndPlanned(pod.UID) }, true},
		{"a choice", reserve, false},
		{"its end before it was written", func() { r.Allocations.Forget(chosen.UID, "n") }, true},
		{"a choice that is carried out", carriedOut, false},
		{"a pod that is bound", func() { r.handlers.podHandler().OnAdd(bound, false) }, false},
		{"a pod that says that it runs", func() { r.handlers.podHandler().OnUpdate(bound, schedtest.PodFrom(bound).Phase(v1.PodRunning).Obj()) }, false},
		{"a pod that is gone", func() { r.handlers.podHandler().OnDelete(bound) }, true},
		{"a GPU that is ill", graph("8", unhealthy), false},
		{"a GPU that is well again", graph("9", healthy), true},
	} {
		before := told
		tc.change()
		if got := told[0] > before[0]; got != tc.want || told[0] != told[1] {
			t.Errorf("%s: told %v times after %v, want any: %t", tc.what, told, before, tc.want)
		}
	}
}
