// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
)

// TestDevclusterFaults checks that the annotation of a simulated node makes its GPUs, its agent, its
// exporter and its kubelet fail, and heals them.
func TestDevclusterFaults(t *testing.T) {
	e := newTestEnv(t, devcluster.Config{})
	e.install(t)
	e.node(t, "node-1", "dgx-a100")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.Follow(ctx, nil) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	fail := func(text string) {
		t.Helper()
		patch := fmt.Sprintf(`{"metadata": {"annotations": {%q: %q}}}`, devcluster.AnnotationFails, text)
		if _, err := e.client.CoreV1().Nodes().Patch(t.Context(), "node-1", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	node := func(ctx context.Context, is func(*v1.Node) bool) (bool, string) {
		n, err := e.client.CoreV1().Nodes().Get(ctx, "node-1", metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		return is(n), fmt.Sprintf("%v, %+v, %+v", n.Status.Allocatable, n.Status.Conditions, n.Spec.Taints)
	}
	// recreated after its deletion: the holder of a Lease creates it at a renewal.
	renewed := func(lease string) func(context.Context) (bool, string) {
		leases := e.client.CoordinationV1().Leases(systemNamespace)
		if err := leases.Delete(t.Context(), lease, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		return func(ctx context.Context) (bool, string) {
			_, err := leases.Get(ctx, lease, metav1.GetOptions{})
			return err == nil, fmt.Sprint(err)
		}
	}

	fail("gpu-2,gpu-5")
	testkit.Eventually(t, waitLimit, "two GPUs are published as not healthy", func(ctx context.Context) (bool, string) {
		u, err := e.dynamic(t).Resource(v1alpha1.GroupVersionResource).Get(ctx, "node-1", metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		health, _ := u.Object["status"].(map[string]any)["gpuHealth"].([]any)
		return len(health) == 2, fmt.Sprint(health)
	})
	testkit.Eventually(t, waitLimit, "kubelet offers six GPUs", func(ctx context.Context) (bool, string) {
		return node(ctx, func(n *v1.Node) bool { return n.Status.Allocatable.Name(v1alpha1.DefaultResource, "").Value() == 6 })
	})

	fail("node")
	testkit.Eventually(t, waitLimit, "the node is not ready, with eight GPUs", func(ctx context.Context) (bool, string) {
		return node(ctx, func(n *v1.Node) bool {
			return n.Status.Conditions[0].Status == v1.ConditionUnknown && len(n.Spec.Taints) == 2 &&
				n.Status.Allocatable.Name(v1alpha1.DefaultResource, "").Value() == 8
		})
	})

	fail("agent")
	testkit.Eventually(t, waitLimit, "the node is ready", func(ctx context.Context) (bool, string) {
		return node(ctx, func(n *v1.Node) bool {
			return n.Status.Conditions[0].Status == v1.ConditionTrue && len(n.Spec.Taints) == 0
		})
	})
	agent := renewed("agent-node-1")
	testkit.Eventually(t, waitLimit, "the exporter's Lease is renewed", renewed("exporter-node-1"))
	if is, _ := agent(t.Context()); is {
		t.Error("the Lease of an agent that has failed is renewed")
	}

	fail("exporter")
	testkit.Eventually(t, waitLimit, "the exporter has ended", func(context.Context) (bool, string) {
		return !e.ExporterRuns("node-1"), "it runs"
	})

	fail("")
	testkit.Eventually(t, waitLimit, "the agent's Lease is renewed", renewed("agent-node-1"))
}
