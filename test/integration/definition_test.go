// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

func (e *testEnv) dynamic(t *testing.T) dynamic.Interface {
	t.Helper()
	dyn, err := dynamic.NewForConfig(e.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	return dyn
}

// TestSchedulerWithoutDefinition checks one scheduler process without the definition of NodeGPUTopology:
// it starts on an API server without the definition, which is then installed, removed under running pods
// and restored.
func TestSchedulerWithoutDefinition(t *testing.T) {
	l := newTestEnv(t, devcluster.Config{})
	spec := l.addNode(t, "n", "dgx1-v100")
	s := l.startScheduler(t, profile{name: preBindProfile, write: "PreBind"}, profile{name: "by-count", write: "PreBind", args: map[string]string{
		topologyPlugin: "nodesWithoutTopology: Allow",
	}})
	pid := s.PID()
	l.create(t, gpuPod("plain", preBindProfile, 0).Obj())
	l.bound(t, "plain") // pods without GPUs need no definition
	l.wantRefused(t, gpuPod("first", preBindProfile, 2).Obj(), placement.NoDefinition.String())
	l.create(t, gpuPod("none", preBindProfile, 1).Annotation(podrequest.TopologyPolicyKey, "none").Obj())
	l.wantByCount(t, "none", placement.NoDefinition)

	l.install(t)
	l.publish(t, devcluster.ExporterOptions{Interval: time.Second}, spec)
	first := choiceOf(t, l.bound(t, "first"), l.graphs["n"])

	crd := v1alpha1.Resource + "." + v1alpha1.GroupName
	if err := l.dynamic(t).Resource(definitions).Delete(t.Context(), crd, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, waitLimit, "the definition and all objects are gone", func(ctx context.Context) (bool, string) {
		_, err := l.dynamic(t).Resource(v1alpha1.GroupVersionResource).List(ctx, metav1.ListOptions{})
		return apierrors.IsNotFound(err), fmt.Sprint(err)
	})
	testkit.Naps(settleTime)
	l.wantRefused(t, gpuPod("second", preBindProfile, 2).Obj(), placement.NoDefinition.String())
	l.create(t, gpuPod("counted", "by-count", 2).Obj())
	l.wantByCount(t, "counted", placement.NoDefinition)

	testkit.Eventually(t, waitLimit, "the definition is installed again", func(ctx context.Context) (bool, string) {
		if err := l.InstallManifests(ctx); err != nil {
			return false, err.Error() // the old one is still being removed
		}
		return true, ""
	})
	second := choiceOf(t, l.bound(t, "second"), l.graphs["n"])
	if both := first.set & second.set; both != 0 {
		testkit.Violation(t, "GPUs %v were given out twice", both.Positions())
	}
	if !second.Unconfirmed {
		t.Error("the choice beside pods whose GPUs nobody knows is not marked unconfirmed")
	}
	// Pods of 2 and 2 GPUs are known, and of 1 and 2 by count.
	l.wantRefused(t, gpuPod("too-many", preBindProfile, 2).Obj(), "Insufficient")
	l.create(t, gpuPod("third", preBindProfile, 1).Obj())
	third := choiceOf(t, l.bound(t, "third"), l.graphs["n"])
	if both := (first.set | second.set) & third.set; both != 0 {
		testkit.Violation(t, "GPUs %v were given out twice", both.Positions())
	}
	if !s.Alive() || s.PID() != pid {
		t.Errorf("the scheduler did not live through it: alive %t, process %d, was %d", s.Alive(), s.PID(), pid)
	}
}

// topology reads a node's object; nil if there is none.
func (e *testEnv) topology(ctx context.Context, t *testing.T, node string) *unstructured.Unstructured {
	t.Helper()
	u, err := e.dynamic(t).Resource(v1alpha1.GroupVersionResource).Get(ctx, node, metav1.GetOptions{})
	if err != nil {
		t.Logf("reading the topology of %s: %v", node, err)
		return nil
	}
	return u
}
