// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/internal/testkit"
	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/plugins/numa"
	"github.com/nvtopo/nvtopo/pkg/plugins/topology"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/cordons"
)

// TestCordonedNode: a pod with devices in flight to a node keeps the node's cordon from being
// acknowledged, and is not bound once the cordon is known; none goes there from then on. This also holds
// if no plugin chooses the pod's devices.
func TestCordonedNode(t *testing.T) {
	const token = "2026-11-29T12:00:00.000000001Z"
	for name, tc := range map[string]struct {
		resource v1.ResourceName
		counts   bool
	}{
		"a pod whose GPUs are chosen":           {gpuResource, true},
		"a pod with a slice, which no one sees": {"nvidia.com/mig-3g.40gb", true},
		"a pod without devices":                 {v1.ResourceEphemeralStorage, false},
	} {
		t.Run(name, func(t *testing.T) {
			e := newTestEnv(t, "Binding", topology.Name, numa.Name)
			if err := e.client.Tracker().Add(e.node); err != nil {
				t.Fatal(err)
			}
			podOf := func(name string) *v1.Pod {
				pod := schedtest.Pod(name).Resource(tc.resource, "1").Obj()
				if err := e.client.Tracker().Add(pod); err != nil {
					t.Fatal(err)
				}
				return pod
			}
			reserve := func(pod *v1.Pod) (fwk.CycleState, *fwk.Status) {
				state := framework.NewCycleState()
				if _, status, _ := e.fw.RunPreFilterPlugins(t.Context(), state, pod); !status.IsSuccess() {
					t.Fatalf("PreFilter: %v", status)
				}
				return state, e.fw.RunReservePluginsReserve(t.Context(), state, pod, e.node.Name)
			}
			first := podOf("first")
			state, status := reserve(first)
			if !status.IsSuccess() {
				t.Fatalf("Reserve: %v", status)
			}
			cordoned := e.node.DeepCopy()
			metav1.SetMetaDataAnnotation(&cordoned.ObjectMeta, poolv1alpha1.AnnotationDraining, token)
			if err := e.client.Tracker().Update(v1.SchemeGroupVersion.WithResource("nodes"), cordoned, ""); err != nil {
				t.Fatal(err)
			}
			words := func() []cordons.Word {
				return e.state(t).Cordons.Words()
			}
			testkit.Soon(t, "the cordon is known", func() bool { return len(words()) == 1 })
			want := []cordons.Word{{Node: e.node.Name, Token: token}}
			if tc.counts {
				want[0].InFlight = []string{first.Namespace + "/first"}
			}
			if diff := cmp.Diff(want, words()); diff != "" {
				t.Errorf("before the Binding (-want,+got):\n%s", diff)
			}
			refuses := func(what string, status *fwk.Status) {
				t.Helper()
				if refused := strings.Contains(status.Message(), nodestate.ErrCordoned.Error()); refused != tc.counts {
					t.Errorf("%s of a pod to a cordoned node: %v, want it refused: %t", what, status, tc.counts)
				}
			}
			filtered := strings.Contains(e.fw.RunFilterPlugins(t.Context(), state, first, e.info(t)).Message(), nodestate.ErrCordoned.Error())
			if want := tc.resource == gpuResource; filtered != want {
				t.Errorf("Filter refuses the cordoned node: %t, want %t: Reserve would, and no other node be tried", filtered, want)
			}
			refuses("Bind", e.fw.RunBindPlugins(t.Context(), state, first, e.node.Name))
			e.fw.RunReservePluginsUnreserve(t.Context(), state, first, e.node.Name)
			if diff := cmp.Diff(want, words()); diff != "" {
				t.Errorf("after an attempt whose writes may still be carried out (-want,+got):\n%s", diff)
			}
			_, status = reserve(podOf("second"))
			refuses("Reserve", status)
			if diff := cmp.Diff(want, words()); diff != "" {
				t.Errorf("after a second pod was refused (-want,+got):\n%s", diff)
			}
		})
	}
}

// TestBoundPod: a pod is in flight until its Binding is carried out.
func TestBoundPod(t *testing.T) {
	e := newTestEnv(t, "Binding", topology.Name, numa.Name)
	pod := schedtest.Pod("p").GPUs(1).Obj()
	state := framework.NewCycleState()
	if _, status, _ := e.fw.RunPreFilterPlugins(t.Context(), state, pod); !status.IsSuccess() {
		t.Fatalf("PreFilter: %v", status)
	}
	if status := e.fw.RunReservePluginsReserve(t.Context(), state, pod, e.node.Name); !status.IsSuccess() {
		t.Fatalf("Reserve: %v", status)
	}
	e.fw.RunPostBindPlugins(t.Context(), state, pod, e.node.Name)
	if err := e.client.Tracker().Add(e.node); err != nil {
		t.Fatal(err)
	}
	cordoned := e.node.DeepCopy()
	metav1.SetMetaDataAnnotation(&cordoned.ObjectMeta, poolv1alpha1.AnnotationDraining, "2026-11-29T12:00:00Z")
	if err := e.client.Tracker().Update(v1.SchemeGroupVersion.WithResource("nodes"), cordoned, ""); err != nil {
		t.Fatal(err)
	}
	testkit.Soon(t, "the cordon is known, and nothing in flight", func() bool {
		w := e.state(t).Cordons.Words()
		return len(w) == 1 && len(w[0].InFlight) == 0
	})
}
