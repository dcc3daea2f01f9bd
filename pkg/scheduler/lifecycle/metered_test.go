// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/internal/testkit"
	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
	"github.com/nvtopo/nvtopo/pkg/plugins/numa"
	"github.com/nvtopo/nvtopo/pkg/plugins/topology"
)

// TestMeteredPods: a tenant's pod that requests devices gets the finalizer of metering before it is
// bound, beside its others, in the same write as its allocation.
func TestMeteredPods(t *testing.T) {
	const metering, own = "pool.nvtopo.dev/metering", "batch.kubernetes.io/job-tracking"
	for name, tc := range map[string]struct {
		label      map[string]string // of the namespace
		write      string
		resource   v1.ResourceName // two of it are requested
		noGraph    bool
		finalizers []string

		wantFinalizers []string
		wantWrites     []string
		wantChoice     bool
	}{
		"with the choice, in one PATCH": {
			label: map[string]string{poolv1alpha1.LabelTenant: "a"}, write: "PreBind", resource: gpuResource, finalizers: []string{own},
			wantFinalizers: []string{metering, own}, wantWrites: []string{"patch pods"}, wantChoice: true,
		},
		"with the choice, which else were on the Binding": {
			label: map[string]string{poolv1alpha1.LabelTenant: "a"}, write: "Binding", resource: gpuResource, finalizers: []string{own},
			wantFinalizers: []string{metering, own}, wantWrites: []string{"patch pods"}, wantChoice: true,
		},
		"of a pod that is placed by count": {
			label: map[string]string{poolv1alpha1.LabelTenant: "a"}, write: "PreBind", resource: gpuResource, noGraph: true,
			wantFinalizers: []string{metering}, wantWrites: []string{"patch pods"},
		},
		"of a pod that asks for devices of which no plugin has a graph": {
			label: map[string]string{poolv1alpha1.LabelTenant: "a"}, write: "PreBind", resource: "habana.ai/gaudi",
			wantFinalizers: []string{metering}, wantWrites: []string{"patch pods"},
		},
		"not twice": {
			label: map[string]string{poolv1alpha1.LabelTenant: "a"}, write: "Binding", resource: gpuResource, finalizers: []string{metering},
			wantFinalizers: []string{metering}, wantWrites: []string{"create pods/binding"},
		},
		"not of a pod without devices": {
			label: map[string]string{poolv1alpha1.LabelTenant: "a"}, write: "PreBind",
		},
		"not of a namespace that is no tenant's": {
			label: map[string]string{"team": "a"}, write: "PreBind", resource: gpuResource, finalizers: []string{own},
			wantFinalizers: []string{own}, wantWrites: []string{"patch pods"}, wantChoice: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newTestEnv(t, tc.write, topology.Name, numa.Name)
			namespace := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceDefault, Labels: tc.label}}
			if err := e.client.Tracker().Add(namespace); err != nil {
				t.Fatal(err)
			}
			testkit.Soon(t, "the namespace is known", func() bool {
				_, err := e.factory.Core().V1().Namespaces().Lister().Get(namespace.Name)
				return err == nil
			})
			if tc.noGraph && !e.state(t).Graphs.Remove("n", "t") {
				t.Fatal("the graph was not there")
			}
			wrapper := schedtest.Pod("p").CPU("2").Memory("1Gi").Annotations(map[string]string{podrequest.TopologyPolicyKey: "none"})
			if tc.resource != "" {
				wrapper.Resource(tc.resource, "2")
			}
			pod := wrapper.Obj()
			pod.Finalizers = tc.finalizers
			if err := e.client.Tracker().Add(pod); err != nil {
				t.Fatal(err)
			}
			e.client.ClearActions()
			e.place(t, pod)
			if tc.write == "Binding" {
				// Skip: a pod with a written allocation is bound by DefaultBinder.
				if status := e.fw.RunBindPlugins(t.Context(), framework.NewCycleState(), pod, e.node.Name); !status.IsSuccess() && !status.IsSkip() {
					t.Fatalf("Bind: %v", status)
				}
			}
			if diff := cmp.Diff(tc.wantWrites, writes(e.client)); diff != "" {
				t.Errorf("writes (-want,+got):\n%s", diff)
			}
			got, err := e.client.CoreV1().Pods(pod.Namespace).Get(t.Context(), pod.Name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.wantFinalizers, got.Finalizers); diff != "" {
				t.Errorf("finalizers (-want,+got):\n%s", diff)
			}
			if choice := got.Annotations[allocation.Key] != ""; choice != tc.wantChoice {
				t.Errorf("the PATCH has a choice: %v, want %v", choice, tc.wantChoice)
			}
		})
	}
}
