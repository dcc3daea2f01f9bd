// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"fmt"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	topologyv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

// oneQueue is a flavor of the scenario's nodes and a queue of tenant a with four GPUs, as users without
// pools would write them.
const oneQueue = `apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: POOL}
spec: {nodeLabels: {pool.nvtopo.dev/pool: POOL}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: POOL}
spec:
  namespaceSelector: {matchLabels: {pool.nvtopo.dev/tenant: POOL-a}}
  resourceGroups:
  - coveredResources: [nvidia.com/gpu]
    flavors: [{name: POOL, resources: [{name: nvidia.com/gpu, nominalQuota: 4}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: POOL, namespace: POOL-a}
spec: {clusterQueue: POOL}
`

// TestJobAboveQuota: a job of one tenant fits its queue's quota, the next one does not. The nodes have
// room for both, so it is Kueue that holds the second one back, until the first has ended.
func TestJobAboveQuota(t *testing.T) {
	s := newScenario(t, dgx(2)...)
	s.tenants(t, "a")
	s.yaml(t, oneQueue)

	s.job(t, "a", "first", work{pods: 2, gpus: 2})
	first := s.running(t, "a", "first", 2)
	distinct(t, first, 4)

	s.job(t, "a", "second", work{pods: 2, gpus: 2})
	s.waits(t, "a", "second")
	if pods := s.pods(t, "a", "second"); len(pods) > 0 {
		t.Fatalf("the second job has %d pods before it has quota", len(pods))
	}
	for _, pod := range first {
		var got v1.Pod
		if s.get(t, &got, pod.Namespace, pod.Name); got.Status.Phase != v1.PodRunning || got.DeletionTimestamp != nil {
			t.Fatalf("pod %s of the first job no longer runs: %s", pod.Name, got.Status.Phase)
		}
	}

	for _, pod := range first {
		s.end(t, pod)
	}
	distinct(t, s.running(t, "a", "second", 2), 4)
	var got batchv1.Job
	if s.get(t, &got, s.tenant("a"), "first"); got.Status.Succeeded != 2 {
		t.Errorf("the second job has run before the first ended: %+v", got.Status)
	}
}

// TestPodOutsideTenants checks that Kueue ignores namespaces without a tenant: such a pod is bound
// although no queue exists.
func TestPodOutsideTenants(t *testing.T) {
	s := newScenario(t, dgx(1)...)
	s.namespace(t, "free", nil)
	pod := s.foreignPod(t, "free", "free", 2)
	s.waitFor(t, "the pod runs", func(ctx context.Context) (bool, string) {
		var got v1.Pod
		if err := s.Get(ctx, client.ObjectKeyFromObject(pod), &got); err != nil {
			return false, err.Error()
		}
		return got.Status.Phase == v1.PodRunning, fmt.Sprintf("%s %+v", got.Status.Phase, got.Status.Conditions)
	})
}

// distinct checks that the pods have a number of GPUs together, and each GPU one pod.
func distinct(t *testing.T, pods []*v1.Pod, want int) {
	t.Helper()
	owner := map[string]types.UID{}
	for _, pod := range pods {
		a, err := allocation.Of(pod, pod.Spec.NodeName)
		if err != nil || a == nil {
			t.Fatalf("pod %s has no allocation: %v", pod.Name, err)
		}
		for _, id := range a.GPUs(topologyv1alpha1.DefaultResource) {
			key := pod.Spec.NodeName + "/" + id
			if other, taken := owner[key]; taken {
				t.Errorf("GPU %s is in two pods: %s and %s", key, other, pod.UID)
			}
			owner[key] = pod.UID
		}
	}
	if len(owner) != want {
		t.Errorf("the pods have %d GPUs, want %d", len(owner), want)
	}
}
