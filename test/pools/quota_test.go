// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/internal/devcluster"
	"github.com/nvtopo/nvtopo/internal/testrig"
	"github.com/nvtopo/nvtopo/pkg/allocation"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
)

// patience is how long Kueue and the scheduler may take for what takes them a second.
const patience = time.Minute

// A job of one tenant fits its queue's quota, the next one does not. The nodes have room
// for both, so it is Kueue that holds the second one back, until the first has ended.
func TestAJobAboveTheQuotaWaits(t *testing.T) {
	l := newLab(t, devcluster.NodeSpec{Name: "a", Machine: "dgx-a100"}, devcluster.NodeSpec{Name: "b", Machine: "dgx-a100"})
	l.tenant(t, "team-a")
	l.apply(t, queues("team-a", "training", 4))

	l.job(t, "team-a", "first", 2, 2)
	first := l.running(t, "team-a", "first", 2)
	l.distinct(t, first, 4)

	l.job(t, "team-a", "second", 2, 2)
	l.waits(t, "team-a", "second")
	if pods := l.pods(t, "team-a", "second"); len(pods) > 0 {
		t.Fatalf("the second job has %d pods before it has quota", len(pods))
	}
	for _, pod := range first {
		if got := l.pod(t, pod.Namespace, pod.Name); got.Status.Phase != v1.PodRunning || got.DeletionTimestamp != nil {
			t.Fatalf("pod %s of the first job no longer runs: %s", pod.Name, got.Status.Phase)
		}
	}

	for _, pod := range first {
		l.end(t, pod)
	}
	l.distinct(t, l.running(t, "team-a", "second", 2), 4)
	got, err := l.client.BatchV1().Jobs("team-a").Get(t.Context(), "first", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got.Status.Succeeded != 2 {
		t.Errorf("the second job has run before the first ended: %+v", got.Status)
	}
}

// Kueue leaves alone what is not a tenant's: such a pod is bound although no queue exists.
func TestAPodOutsideTheTenantsNeedsNoQuota(t *testing.T) {
	l := newLab(t, devcluster.NodeSpec{Name: "a", Machine: "dgx-a100"})
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "free", Namespace: metav1.NamespaceDefault},
		Spec:       podSpec(2),
	}
	if _, err := l.client.CoreV1().Pods(metav1.NamespaceDefault).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	testrig.Eventually(t, patience, "the pod runs", func(ctx context.Context) (bool, string) {
		got, err := l.client.CoreV1().Pods(metav1.NamespaceDefault).Get(ctx, "free", metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		return got.Status.Phase == v1.PodRunning, fmt.Sprintf("%s %+v", got.Status.Phase, got.Status.Conditions)
	})
}

// job makes a suspended job of pods with GPUs in the queue.
func (l *lab) job(t *testing.T, namespace, name string, pods int32, gpus int64) {
	t.Helper()
	suspend := true
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: map[string]string{queueLabel: "training"}},
		Spec: batchv1.JobSpec{
			Suspend: &suspend, Parallelism: &pods, Completions: &pods,
			Template: v1.PodTemplateSpec{Spec: podSpec(gpus)},
		},
	}
	if _, err := l.client.BatchV1().Jobs(namespace).Create(t.Context(), job, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func podSpec(gpus int64) v1.PodSpec {
	return v1.PodSpec{
		SchedulerName: "topology-aware-scheduler",
		RestartPolicy: v1.RestartPolicyNever,
		Containers: []v1.Container{{Name: "main", Image: "example.com/train", Resources: v1.ResourceRequirements{
			Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")},
			Limits:   v1.ResourceList{v1alpha1.DefaultResource: *resource.NewQuantity(gpus, resource.DecimalSI)},
		}}},
	}
}

// running waits until all pods of a job run, and returns them.
func (l *lab) running(t *testing.T, namespace, job string, want int) []*v1.Pod {
	t.Helper()
	var pods []*v1.Pod
	testrig.Eventually(t, patience, "job "+job+" runs", func(ctx context.Context) (bool, string) {
		pods = l.pods(t, namespace, job)
		waiting := slices.ContainsFunc(pods, func(p *v1.Pod) bool { return p.Status.Phase != v1.PodRunning })
		return len(pods) == want && !waiting, fmt.Sprintf("%d pods, workloads %s", len(pods), l.conditions(ctx, namespace))
	})
	return pods
}

// distinct checks that the pods have so many GPUs together, and each GPU one pod.
func (l *lab) distinct(t *testing.T, pods []*v1.Pod, want int) {
	t.Helper()
	owner := map[string]types.UID{}
	for _, pod := range pods {
		a, err := allocation.Of(pod, pod.Spec.NodeName)
		if err != nil || a == nil {
			t.Fatalf("pod %s has no allocation: %v", pod.Name, err)
		}
		for _, id := range a.GPUs(v1alpha1.DefaultResource) {
			if other, taken := owner[id]; taken {
				t.Errorf("GPU %s is in two pods: %s and %s", id, other, pod.UID)
			}
			owner[id] = pod.UID
		}
	}
	if len(owner) != want {
		t.Errorf("the pods have %d GPUs, want %d", len(owner), want)
	}
}

// end lets a running pod succeed.
func (l *lab) end(t *testing.T, pod *v1.Pod) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"0s"}}}`, devcluster.AnnotationRunsFor)
	_, err := l.client.CoreV1().Pods(pod.Namespace).Patch(t.Context(), pod.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
}
