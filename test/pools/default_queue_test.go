// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// TestDefaultQueue checks that edits, additions and deletions of the queue for jobs without one are
// reverted, and that jobs pass. The queue belongs to all tenants, so the test has a cluster of its own.
func TestDefaultQueue(t *testing.T) {
	s := newScenarioOn(t, newTestEnv(t), dgx(1)...)
	s.tenants(t, "a")
	first := s.waitDefaultQueue(t, nil, "")

	for what, patch := range map[string]string{
		"is stopped":          `{"spec":{"stopPolicy":"HoldAndDrain"}}`,
		"takes nobody's jobs": `{"spec":{"namespaceSelector":{"matchLabels":{"team":"none"}}}}`,
		"has GPUs":            `{"spec":{"resourceGroups":[{"coveredResources":["nvidia.com/gpu"],"flavors":[{"name":"x","resources":[{"name":"nvidia.com/gpu","nominalQuota":8}]}]}]}}`,
		"is in a cohort":      `{"spec":{"cohortName":"x"}}`,
		"is not ours":         fmt.Sprintf(`{"metadata":{"labels":{%q:"x"}}}`, names.LabelManaged),
	} {
		t.Log("the queue " + what)
		queue := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: names.DefaultClusterQueue}}
		if err := s.Patch(t.Context(), queue, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
			t.Fatal(err)
		}
		s.waitDefaultQueue(t, first, "")
	}
	s.remove(t, &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: names.DefaultClusterQueue}})
	s.waitDefaultQueue(t, first, first.UID)
	s.job(t, "a", "no-devices", work{unqueued: true})
	s.running(t, "a", "no-devices", 1)
}

// waitDefaultQueue waits until the queue accepts jobs, equals before, unless that is nil, and has another
// UID than gone, and returns it.
func (s *scenario) waitDefaultQueue(t *testing.T, before *kueue.ClusterQueue, gone types.UID) *kueue.ClusterQueue {
	t.Helper()
	queue := &kueue.ClusterQueue{}
	s.waitFor(t, "the default queue", func(ctx context.Context) (bool, string) {
		if err := s.Get(ctx, client.ObjectKey{Name: names.DefaultClusterQueue}, queue); err != nil {
			return false, err.Error()
		}
		if before != nil {
			if diff := cmp.Diff(before.Spec, queue.Spec) + cmp.Diff(before.Labels, queue.Labels); diff != "" {
				return false, diff
			}
		}
		return queue.UID != gone && meta.IsStatusConditionTrue(queue.Status.Conditions, kueue.ClusterQueueActive), fmt.Sprintf("%+v", queue)
	})
	return queue.DeepCopy()
}
