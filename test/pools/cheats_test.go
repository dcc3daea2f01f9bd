// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/elasticjob"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// cheatLimit is how many devices tenant a may hold, of 16; all of them are guaranteed to tenant b.
const cheatLimit = 4

const cheatPool = `
  poolType: gpu
  capacity: {total: 16}
  quotas:
  - {tenant: POOL-a, limit: 4}
  - {tenant: POOL-b, limit: 16, guaranteed: 16}`

// TestCheats checks that a tenant with the rights of edit in its namespace cannot exceed its limit, and
// cannot keep devices that are guaranteed to another. Each attack goes as far as it is allowed; the
// recorder checks the limit at every change of a pod.
func TestCheats(t *testing.T) {
	t.Parallel()
	for name, attack := range map[string]func(*testing.T, *scenario, client.Client){
		"a pod group whose pods say that they are alike": alikePods,
		"an elastic slice whose pods lose their gates":   ungatedSlice,
		"a pod that Kueue is to know no more":            forgottenPod,
		"a pod that leaves its job":                      leavingPods,
		"a job that is deleted without its pods":         orphanedPods,
		"a job that stays when it is deleted":            keptJob,
		"a pod that the scheduler evicts others for":     criticalPods,
		"a running job that becomes larger":              largerJob,
		"a job that needs fewer pods than it may have":   reclaimedPods,
	} {
		t.Run(name, func(t *testing.T) {
			s := newScenario(t, dgx(2)...)
			s.pool(t, cheatPool, "a", "b")
			if err := s.priorityClass(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
			attack(t, s, s.editor(t))
			s.settled(t)
			if got := s.counts("a").bound; got > cheatLimit {
				t.Errorf("the tenant holds %d devices, and its limit is %d", got, cheatLimit)
			}
		})
	}
}

// editor returns a client of a user with the rights of Kubernetes' role edit in the namespace of tenant
// a.
func (s *scenario) editor(t *testing.T) client.Client {
	t.Helper()
	person := s.personWith(t, "a", "edit", rulesOf(s.clusterRoles(t), "edit"))
	s.waitFor(t, "the tenant may make jobs", func(ctx context.Context) (bool, string) {
		err := person.List(ctx, &batchv1.JobList{}, client.InNamespace(s.tenant("a")))
		return err == nil, errorText(err)
	})
	return person
}

// refused checks that an attack was refused, with a part of the reason.
func refused(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case err == nil:
		t.Errorf("it was let pass; want: %s", want)
	case !strings.Contains(err.Error(), want):
		t.Errorf("the answer was: %v; want: %s", err, want)
	}
}

// patched returns the error of a tenant's patch.
func patched(t *testing.T, tenant client.Client, o client.Object, patch string) error {
	t.Helper()
	copied, _ := o.DeepCopyObject().(client.Object)
	return tenant.Patch(t.Context(), copied, client.RawPatch(types.MergePatchType, []byte(patch)))
}

// queued returns a pod of tenant a with a queue.
func (s *scenario) queued(name string, gpus int64) *v1.Pod {
	return gpuPod(s.tenant("a"), name, gpus).Label(kueue.LabelQueue, s.name).Obj()
}

// tenantJob creates a Job as the tenant.
func (s *scenario) tenantJob(t *testing.T, tenant client.Client, job *batchv1.Job) {
	t.Helper()
	if err := tenant.Create(t.Context(), job); err != nil {
		t.Fatal(err)
	}
}

// runs waits until a pod runs.
func (s *scenario) runs(t *testing.T, pod *v1.Pod) {
	t.Helper()
	s.waitFor(t, "pod "+pod.Name+" runs", func(ctx context.Context) (bool, string) {
		err := s.Get(ctx, client.ObjectKeyFromObject(pod), pod)
		return err == nil && pod.Status.Phase == v1.PodRunning, fmt.Sprint(err, pod.Status.Phase, pod.Spec.SchedulingGates)
	})
}

// alikePods creates a pod group whose pods declare the same hash. Kueue groups pods by that hash, and
// counts a group with fast admission as its first pod times its declared size: 15 devices were bound, and
// 3 counted.
func alikePods(t *testing.T, s *scenario, tenant client.Client) {
	t.Helper()
	for i, gpus := range []int64{1, 7, 7} {
		pod := s.queued(fmt.Sprintf("member-%d", i), gpus)
		pod.Labels[kueue.LabelPodGroup] = "group"
		pod.Annotations = map[string]string{
			"kueue.x-k8s.io/pod-group-total-count": "3", "kueue.x-k8s.io/pod-group-fast-admission": "true", "kueue.x-k8s.io/role-hash": "alike",
		}
		refused(t, tenant.Create(t.Context(), pod), "Kueue believes a pod group what its pods are")
	}
}

// ungatedSlice removes the gates of a larger slice's pods, which have them until there is quota for it.
func ungatedSlice(t *testing.T, s *scenario, tenant client.Client) {
	t.Helper()
	job := s.jobObject("a", "slice", &work{gpus: 1, annotations: map[string]string{"kueue.x-k8s.io/elastic-job": "true"}})
	job.Spec.Completions = nil
	err := tenant.Create(t.Context(), job)
	refused(t, err, "kueue.x-k8s.io/elastic-job: only Kueue writes this")
	if err != nil {
		return
	}
	s.running(t, "a", "slice", 1)
	if err := patched(t, tenant, job, `{"spec":{"parallelism":14}}`); err != nil {
		t.Fatal(err)
	}
	s.waitFor(t, "the pods are made", func(context.Context) (bool, string) {
		n := len(s.pods(t, "a", "slice"))
		return n == 14, strconv.Itoa(n)
	})
	for _, pod := range s.pods(t, "a", "slice") {
		if len(pod.Spec.SchedulingGates) > 0 {
			refused(t, patched(t, tenant, pod, `{"spec":{"schedulingGates":null}}`), "Kueue removes its gate")
		}
	}
}

// forgottenPod removes Kueue's marks from a pod: Kueue then ignores it, even if its devices are
// guaranteed to another tenant.
func forgottenPod(t *testing.T, s *scenario, tenant client.Client) {
	t.Helper()
	pod := s.queued("borrows", 4)
	if err := tenant.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	s.runs(t, pod)
	refused(t, patched(t, tenant, pod, `{"metadata":{"labels":{"kueue.x-k8s.io/managed":null}}}`), "kueue.x-k8s.io/managed: only Kueue writes this")
	// The other finalizer stays: another policy protects it, and which of the two refuses is random.
	refused(t, patched(t, tenant, pod, `{"metadata":{"finalizers":["pool.nvtopo.dev/metering"]}}`), "metadata.finalizers: kueue.x-k8s.io/managed")
	s.job(t, "b", "guaranteed", work{pods: 4, gpus: 4})
	s.running(t, "b", "guaranteed", 4)
}

// leavingPods makes a Job release a pod: Kueue then ignores it, and the Job creates another one.
func leavingPods(t *testing.T, s *scenario, tenant client.Client) {
	t.Helper()
	s.tenantJob(t, tenant, s.jobObject("a", "left", &work{gpus: 4}))
	pod := s.running(t, "a", "left", 1)[0]
	refused(t, patched(t, tenant, pod, `{"metadata":{"labels":{"batch.kubernetes.io/controller-uid":null}}}`), "keep the pod with its job")
	refused(t, patched(t, tenant, pod, `{"metadata":{"ownerReferences":null,"labels":{"controller-uid":null}}}`), "stays the job's")
	job := s.jobObject("a", "selects", &work{gpus: 4})
	job.Spec.ManualSelector, job.Spec.Selector = new(true), &metav1.LabelSelector{MatchLabels: map[string]string{"app": "mine"}}
	job.Spec.Template.Labels = map[string]string{"app": "mine"}
	refused(t, tenant.Create(t.Context(), job), "spec.manualSelector")
}

// orphanedPods deletes a Job with Orphan: its pods run on, and its quota is free.
func orphanedPods(t *testing.T, s *scenario, tenant client.Client) {
	t.Helper()
	first := s.jobObject("a", "first", &work{gpus: 4})
	s.tenantJob(t, tenant, first)
	s.running(t, "a", "first", 1)
	const want = "the pods of a tenant's job go with it"
	refused(t, tenant.Delete(t.Context(), first, client.PropagationPolicy(metav1.DeletePropagationOrphan)), want)
	refused(t, tenant.Delete(t.Context(), first), want) // the API server's default
	s.tenantJob(t, tenant, s.jobObject("a", "second", &work{gpus: 4}))
}

// keptJob keeps a job that is being deleted by a finalizer: Kueue returns its quota, and its pods run on.
func keptJob(t *testing.T, s *scenario, tenant client.Client) {
	t.Helper()
	const want = "metadata.finalizers: a tenant's job has none"
	first := s.jobObject("a", "first", &work{gpus: 4})
	s.tenantJob(t, tenant, first)
	s.running(t, "a", "first", 1)
	err := patched(t, tenant, first, `{"metadata":{"finalizers":["example.com/stays"]}}`)
	refused(t, err, want)
	if err == nil {
		if err := tenant.Delete(t.Context(), first, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			free := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
			if err := s.Patch(context.Background(), first, free); client.IgnoreNotFound(err) != nil {
				t.Error(err)
			}
		})
	}
	s.tenantJob(t, tenant, s.jobObject("a", "second", &work{gpus: 4}))
}

// criticalPods gives pods a higher PriorityClass, for which the scheduler evicts others. Here tenant b's
// protected job leaves two devices on each machine, so that four in one pod have quota, and a place only
// without that job.
func criticalPods(t *testing.T, s *scenario, tenant client.Client) {
	t.Helper()
	s.elasticJob(t, "b", "protected", `
  preemptible: false
  scaling: {minReplicas: 2, maxReplicas: 2, gpuPerReplica: 6}`)
	s.phase(t, "b", "protected", poolv1alpha1.JobRunning)
	s.running(t, "b", names.BaseJob("protected"), 2)
	before := s.podUIDs(t, "b", names.BaseJob("protected"))
	const critical, want = "system-cluster-critical", "would evict others"
	job := s.jobObject("a", "critical", &work{gpus: 4})
	job.Spec.Template.Spec.PriorityClassName = critical
	refused(t, tenant.Create(t.Context(), job), want)
	pod := s.queued("critical", 4)
	pod.Spec.PriorityClassName = critical
	refused(t, tenant.Create(t.Context(), pod), want)
	s.yaml(t, fmt.Sprintf(`apiVersion: pool.nvtopo.dev/v1alpha1
kind: ElasticJob
metadata: {name: critical, namespace: POOL-a}
spec:
  pool: POOL
  scaling: {minReplicas: 1, maxReplicas: 1, gpuPerReplica: 4}
  template: {spec: {priorityClassName: %s, containers: [{name: main, image: example.com/train}]}}
`, critical))
	said := s.condition(t, "a", "critical", poolv1alpha1.ConditionAdmitted, metav1.ConditionFalse, elasticjob.ReasonTemplateInvalid)
	if !strings.Contains(said, "spec.template.spec.priorityClassName: "+critical) {
		t.Errorf("the ElasticJob says %s", said)
	}
	s.settled(t)
	if after := s.podUIDs(t, "b", names.BaseJob("protected")); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("the pods of the protected job were %v, and are %v", before, after)
	}
}

// largerJob raises the number of a job's pods. Kueue stops a job that runs with more pods than it
// counted, once they have started. A job that is suspended by the same change waits for quota again.
func largerJob(t *testing.T, s *scenario, tenant client.Client) {
	t.Helper()
	job := s.jobObject("a", "grows", &work{gpus: 1})
	job.Spec.Completions = nil
	s.tenantJob(t, tenant, job)
	s.running(t, "a", "grows", 1)
	refused(t, patched(t, tenant, job, `{"spec":{"parallelism":14}}`), "14 pods at a time, and the job runs with quota for 1")
	if err := patched(t, tenant, job, `{"spec":{"suspend":true,"parallelism":4}}`); err != nil {
		t.Fatal(err)
	}
	s.running(t, "a", "grows", 4)
}

// reclaimedPods runs a job with more parallel pods than completions: once a pod has ended, Kueue returns
// the quota of as many pods as parallelism exceeds the remaining completions, and these run on: 7 devices
// were bound.
func reclaimedPods(t *testing.T, s *scenario, tenant client.Client) {
	t.Helper()
	job := s.jobObject("a", "ends", &work{gpus: 1})
	job.Spec.Parallelism, job.Spec.Completions = new(int32(8)), new(int32(4))
	err := tenant.Create(t.Context(), job)
	refused(t, err, "spec.parallelism: 8 pods at a time, and spec.completions is 4")
	if err != nil {
		return
	}
	s.end(t, s.running(t, "a", "ends", 4)[0])
	s.tenantJob(t, tenant, s.jobObject("a", "beside", &work{gpus: 4}))
	s.settled(t)
}
