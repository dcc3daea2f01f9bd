// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/testobj"
	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	topologyv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

const schedulerName = "topology-aware-scheduler"

// work describes a Job.
type work struct {
	pods     int32 // 1 when 0
	gpus     int64 // of each pod
	queue    string
	priority int32
	runs     time.Duration // after which each pod succeeds; never when 0
	unqueued bool          // without the queue's label
	// labels and annotations of the Job.
	labels, annotations map[string]string
}

// job creates a Job in the namespace of a tenant. Kueue starts it.
func (s *scenario) job(t *testing.T, tenant, name string, w work) *batchv1.Job {
	t.Helper()
	if err := s.priorityClass(t.Context(), w.priority); err != nil {
		t.Fatal(err)
	}
	job := s.jobObject(tenant, name, &w)
	if err := s.Create(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	return job
}

// jobs creates n equal Jobs: name-0, name-1 and so on.
func (s *scenario) jobs(t *testing.T, tenant, name string, n int, w work) {
	t.Helper()
	for i := range n {
		s.job(t, tenant, fmt.Sprintf("%s-%d", name, i), w)
	}
}

// jobObject returns the Job of some work.
func (s *scenario) jobObject(tenant, name string, w *work) *batchv1.Job {
	class, _ := names.PriorityClass(w.priority, names.RoleBase)
	labels := map[string]string{kueue.LabelQueue: names.LocalQueue(s.name, w.queue), kueue.LabelPriorityClass: class}
	if w.unqueued {
		labels = map[string]string{}
	}
	maps.Copy(labels, w.labels)
	pods, suspend, retries := max(w.pods, 1), !w.unqueued, int32(1000)
	template := v1.PodTemplateSpec{Spec: gpuPod("", "", w.gpus).Obj().Spec}
	if w.runs > 0 {
		template.Annotations = map[string]string{devcluster.AnnotationRunsFor: w.runs.String()}
	}
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.tenant(tenant), Labels: labels, Annotations: w.annotations},
		Spec:       batchv1.JobSpec{Suspend: &suspend, Parallelism: &pods, Completions: &pods, BackoffLimit: &retries, Template: template},
	}
}

// priorityClass creates the class of jobs of a priority, as the pool controller does for its own.
func (s *scenario) priorityClass(ctx context.Context, priority int32) error {
	name, value := names.PriorityClass(priority, names.RoleBase)
	err := s.Create(ctx, &kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make the class of priority %d: %w", priority, err)
	}
	return nil
}

// gpuPod returns a pod of the scheduler that requests GPUs.
func gpuPod(namespace, name string, gpus int64) *testobj.PodWrapper {
	p := testobj.Pod(name).Namespace(namespace).Scheduler(schedulerName).Image("example.com/train").Request(v1.ResourceCPU, "1").
		With(func(p *v1.Pod) { p.Spec.RestartPolicy = v1.RestartPolicyNever })
	if gpus > 0 {
		p.Limit(topologyv1alpha1.DefaultResource, strconv.FormatInt(gpus, 10))
	}
	return p
}

// foreignPod creates a pod in a namespace without a tenant, on the pool's nodes. It uses affinity: a pod
// with a node selector for them is refused.
func (s *scenario) foreignPod(t *testing.T, namespace, name string, gpus int64) *v1.Pod {
	t.Helper()
	pod := gpuPod(s.tenant(namespace), name, gpus).Obj()
	pod.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{
		NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{
			{Key: poolv1alpha1.LabelPool, Operator: v1.NodeSelectorOpIn, Values: []string{s.name}},
		}}},
	}}}
	if err := s.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	return pod
}

// elasticJob applies the spec of an ElasticJob of the pool, in YAML, indented by two; its pods use the
// scheduler and have gpuPerReplica devices.
//
//	s.elasticJob(t, "a", "train", `
//	  priority: 5
//	  scaling: {minReplicas: 2, maxReplicas: 7, gpuPerReplica: 8}`)
func (s *scenario) elasticJob(t *testing.T, tenant, name, spec string) {
	t.Helper()
	s.yaml(t, fmt.Sprintf(`apiVersion: pool.nvtopo.dev/v1alpha1
kind: ElasticJob
metadata: {name: %s, namespace: %s}
spec:
  pool: POOL
  template: {spec: {containers: [{name: main, image: example.com/train}]}}
%s
`, name, s.tenant(tenant), strings.Trim(spec, "\n")))
}

// elastic reads an ElasticJob.
func (s *scenario) elastic(t *testing.T, tenant, name string) *poolv1alpha1.ElasticJob {
	t.Helper()
	var job poolv1alpha1.ElasticJob
	s.get(t, &job, s.tenant(tenant), name)
	return &job
}

// waitElastic waits until the status of an ElasticJob fulfils done.
func (s *scenario) waitElastic(t *testing.T, tenant, name, what string, done func(*poolv1alpha1.ElasticJobStatus) bool) {
	t.Helper()
	s.waitFor(t, name+" "+what, func(ctx context.Context) (bool, string) {
		var job poolv1alpha1.ElasticJob
		if err := s.Get(ctx, client.ObjectKey{Namespace: s.tenant(tenant), Name: name}, &job); err != nil {
			return false, err.Error()
		}
		return done(&job.Status), fmt.Sprintf("generation %d, status %+v", job.Generation, job.Status)
	})
}

// pods returns the pods of a job.
func (s *scenario) pods(t *testing.T, tenant, job string) []*v1.Pod {
	t.Helper()
	return s.podsOf(t, tenant, client.MatchingLabels{batchv1.JobNameLabel: job})
}

// podsOf returns the pods of a tenant that options select.
func (s *scenario) podsOf(t *testing.T, tenant string, options ...client.ListOption) (out []*v1.Pod) {
	t.Helper()
	var list v1.PodList
	if err := s.List(t.Context(), &list, append(options, client.InNamespace(s.tenant(tenant)))...); err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		out = append(out, &list.Items[i])
	}
	return out
}

// running waits until a job has a number of pods, all of which run, and returns them.
func (s *scenario) running(t *testing.T, tenant, job string, want int) (pods []*v1.Pod) {
	t.Helper()
	s.waitFor(t, "job "+job+" runs", func(context.Context) (bool, string) {
		pods = slices.DeleteFunc(s.pods(t, tenant, job), func(p *v1.Pod) bool { return p.DeletionTimestamp != nil || p.Status.Phase == v1.PodFailed })
		waiting := slices.ContainsFunc(pods, func(p *v1.Pod) bool { return p.Status.Phase != v1.PodRunning })
		return len(pods) == want && !waiting, fmt.Sprintf("%d pods, want %d that run", len(pods), want)
	})
	return pods
}

// end makes a running pod succeed.
func (s *scenario) end(t *testing.T, pod *v1.Pod) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"0s"}}}`, devcluster.AnnotationRunsFor)
	if err := s.Patch(t.Context(), pod, client.RawPatch(types.MergePatchType, patch)); err != nil {
		t.Fatal(err)
	}
}

// linger makes a pod run on after its deletion, until let is called.
func (s *scenario) linger(t *testing.T, pod *v1.Pod) (let func()) {
	t.Helper()
	set := func(value string) error {
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%s}}}`, devcluster.AnnotationLingers, value)
		return s.Patch(context.Background(), pod.DeepCopy(), client.RawPatch(types.MergePatchType, patch)) // also after the test
	}
	if err := set(`"true"`); err != nil {
		t.Fatal(err)
	}
	let = func() {
		if err := set("null"); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
	}
	t.Cleanup(let)
	return let
}

// workload returns Kueue's Workload of a job; nil if there is none yet.
func (s *scenario) workload(ctx context.Context, tenant, job string) (*kueue.Workload, error) {
	var list kueue.WorkloadList
	if err := s.List(ctx, &list, client.InNamespace(s.tenant(tenant))); err != nil {
		return nil, fmt.Errorf("list Workloads: %w", err)
	}
	for i := range list.Items {
		owners := list.Items[i].OwnerReferences
		if slices.ContainsFunc(owners, func(o metav1.OwnerReference) bool { return o.Name == job }) {
			return &list.Items[i], nil
		}
	}
	return nil, nil
}

// waits waits until Kueue has found no quota for a job, which is then still suspended.
func (s *scenario) waits(t *testing.T, tenant, job string) {
	t.Helper()
	s.waitFor(t, "job "+job+" waits for quota", func(ctx context.Context) (bool, string) {
		w, err := s.workload(ctx, tenant, job)
		if err != nil || w == nil {
			return false, fmt.Sprintf("workload %v, %v", w, err)
		}
		c := meta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadQuotaReserved)
		return c != nil && c.Status == metav1.ConditionFalse && strings.Contains(c.Message, "insufficient"), fmt.Sprint(c)
	})
	var got batchv1.Job
	s.get(t, &got, s.tenant(tenant), job)
	if got.Spec.Suspend == nil || !*got.Spec.Suspend {
		t.Fatalf("job %s waits for quota and is not suspended", job)
	}
}
