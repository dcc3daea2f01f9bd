// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
)

// TestDevclusterMachines checks that a devcluster publishes every machine.
func TestDevclusterMachines(t *testing.T) { //nolint:tparallel // its steps share one cluster
	c := startCluster(t, devcluster.Config{})
	if err := c.InstallManifests(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Applying twice must work: `devcluster up` on a kept folder does it.
	if err := c.InstallManifests(t.Context()); err != nil {
		t.Fatalf("install the manifests again: %v", err)
	}
	var specs []devcluster.NodeSpec
	for _, name := range machine.Names() {
		specs = append(specs, devcluster.NodeSpec{Name: "node-" + name, Machine: name, Labels: map[string]string{"zone": "a"}})
	}
	if err := c.AddNodes(t.Context(), specs); err != nil {
		t.Fatal(err)
	}
	if err := c.RunExporters(t.Context(), specs, devcluster.ExporterOptions{}); err != nil {
		t.Fatal(err)
	}
	client := clientFor(t, c)
	dyn, err := dynamic.NewForConfig(c.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	for _, spec := range specs {
		t.Run(spec.Machine, func(t *testing.T) {
			want, err := spec.Graph()
			if err != nil {
				t.Fatal(err)
			}
			node, err := client.CoreV1().Nodes().Get(t.Context(), spec.Name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			gpus := node.Status.Allocatable[v1.ResourceName(spec.Resource())]
			if int(gpus.Value()) != want.Len() || node.Status.Allocatable.Cpu().IsZero() || node.Labels["zone"] != "a" {
				t.Errorf("allocatable %v and labels %v, want %d GPUs, CPUs and zone=a", node.Status.Allocatable, node.Labels, want.Len())
			}
			u, err := dyn.Resource(v1alpha1.GroupVersionResource).Get(t.Context(), spec.Name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			got := &v1alpha1.NodeGPUTopology{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, got); err != nil {
				t.Fatal(err)
			}
			graphs, err := got.Graphs()
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(want, graphs[spec.Resource()], cmp.AllowUnexported(nvtopo.Graph{})); d != "" {
				t.Errorf("the published graph differs from the catalogue's (-catalogue +published):\n%s", d)
			}
			if got.Spec.NodeUID != node.UID || !meta.IsStatusConditionTrue(got.Status.Conditions, v1alpha1.ConditionEnforced) {
				t.Errorf("node UID %s and conditions %v, want %s and Enforced", got.Spec.NodeUID, got.Status.Conditions, node.UID)
			}
			for _, prefix := range []string{"exporter-", "agent-"} {
				if _, err := client.CoordinationV1().Leases("nvtopo-system").Get(t.Context(), prefix+spec.Name, metav1.GetOptions{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
