// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/elasticjob"
)

// fourOfSixteen is a pool of 16 devices of which tenant a may hold 4.
const fourOfSixteen = `
  poolType: gpu
  capacity: {total: 16}
  quotas: [{tenant: POOL-a, limit: 4}, {tenant: POOL-b, guaranteed: 4}]`

// slowJob returns a Job of one pod of 4 GPUs with a grace period.
func (s *scenario) slowJob(name string, seconds int64) *batchv1.Job {
	job := s.jobObject("a", name, &work{gpus: 4})
	job.Spec.Template.Spec.TerminationGracePeriodSeconds = &seconds
	return job
}

// holds returns the number of devices of a tenant's bound pods that have not ended, terminating ones
// included.
func (s *scenario) holds(t *testing.T, tenant string) (n int64) {
	t.Helper()
	for _, p := range s.podsOf(t, tenant) {
		if p.Spec.NodeName != "" && p.Status.Phase != v1.PodSucceeded && p.Status.Phase != v1.PodFailed {
			n += devicesOf(&p.Spec)
		}
	}
	return n
}

// TestEndingPodsCount checks that a tenant that creates a job, deletes it and creates the next never
// holds more than its limit, however long the pods take to end: terminating pods are included.
func TestEndingPodsCount(t *testing.T) {
	s := newScenario(t, dgx(2)...)
	s.pool(t, fourOfSixteen, "a", "b")
	owner := s.ownerOf(t, "a")
	if err := s.priorityClass(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	create := func(i int) string {
		name := fmt.Sprintf("j%d", i)
		if err := owner.Create(t.Context(), s.slowJob(name, 600)); err != nil {
			t.Fatal(err)
		}
		return name
	}
	name := create(0)
	for i := range 3 {
		pod := s.running(t, "a", name, 1)[0]
		let := s.linger(t, pod)
		if err := owner.Delete(t.Context(), &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: s.tenant("a"), Name: name}}, client.PropagationPolicy("Background")); err != nil {
			t.Fatal(err)
		}
		name = create(i + 1)
		s.waitFor(t, "job "+name+" waits for the pods that are ending", func(ctx context.Context) (bool, string) {
			if n := s.holds(t, "a"); n > 4 {
				t.Fatalf("tenant a holds %d devices, its limit is 4", n)
			}
			c, w, err := s.check(ctx, name)
			return err == nil && w != nil && strings.Contains(c.Message, "4 of them by pods that are ending or have no quota: this job's 4 wait"), fmt.Sprintf("%+v, %v", c, err)
		})
		s.settled(t)
		if n := s.holds(t, "a"); n != 4 || len(s.pods(t, "a", name)) > 0 {
			t.Fatalf("tenant a holds %d devices and job %s has %d pods; want 4, of pods that are ending, and none", n, name, len(s.pods(t, "a", name)))
		}
		let()
	}
	s.running(t, "a", name, 1)
	var most int64
	if s.recorder.read(s.name, func(a *account) { most = a.occupied[s.tenant("a")] }); most != 4 {
		t.Errorf("tenant a's pods had %d devices at some time, want 4, its limit", most)
	}
}

// TestGracePeriodBound checks that a tenant's pod takes no longer to end than its pool allows, for every
// user and every way of deletion.
func TestGracePeriodBound(t *testing.T) {
	s := newScenario(t, dgx(2)...)
	s.pool(t, fourOfSixteen, "a")
	owner := s.ownerOf(t, "a")
	if err := s.priorityClass(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	refused := func(what string, err error, want string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want an error with %q", what, err, want)
		}
	}
	// The API server reads the policy's parameters some time after they were written.
	s.waitFor(t, "the pool's bound is known", func(ctx context.Context) (bool, string) {
		err := owner.Create(ctx, s.slowJob("long", 3600), client.DryRunAll)
		return err != nil && strings.Contains(err.Error(), "at most 600 in pool "+s.name), errorText(err)
	})
	bare := gpuPod(s.tenant("a"), "bare", 4).Label("kueue.x-k8s.io/queue-name", s.name).Obj()
	bare.Spec.TerminationGracePeriodSeconds = new(int64(3600))
	refused("a pod of an hour", owner.Create(t.Context(), bare), "at most 600 in pool "+s.name)

	s.yaml(t, fmt.Sprintf(`apiVersion: pool.nvtopo.dev/v1alpha1
kind: ElasticJob
metadata: {name: long, namespace: %s}
spec:
  pool: POOL
  scaling: {minReplicas: 1, maxReplicas: 1, gpuPerReplica: 1}
  template: {spec: {terminationGracePeriodSeconds: 3600, containers: [{name: main, image: example.com/train}]}}`, s.tenant("a")))
	s.ill(t, "a", "long", poolv1alpha1.ConditionTemplateValid, elasticjob.ReasonInvalid, "terminationGracePeriodSeconds: 3600: at most 600")

	if err := owner.Create(t.Context(), s.slowJob("runs", 600)); err != nil {
		t.Fatal(err)
	}
	pod := s.running(t, "a", "runs", 1)[0]
	const want = "gracePeriodSeconds: a tenant's running pod"
	refused("to delete a Job's pod, which is replaced at once", owner.Delete(t.Context(), pod.DeepCopy()), want)
	refused("to delete a pod and give it an hour", owner.Delete(t.Context(), pod.DeepCopy(), client.GracePeriodSeconds(3600)), want)
	refused("to delete a pod by force", owner.Delete(t.Context(), pod.DeepCopy(), client.GracePeriodSeconds(0)), want)
	refused("to delete all pods and give them an hour", owner.DeleteAllOf(t.Context(), &v1.Pod{}, client.InNamespace(pod.Namespace), client.GracePeriodSeconds(3600)), want)
	for what, options := range map[string]*metav1.DeleteOptions{"as it is": nil, "and give it an hour": {GracePeriodSeconds: new(int64(3600))}} {
		refused("to evict a pod "+what, owner.SubResource("eviction").Create(t.Context(), pod.DeepCopy(), &policyv1.Eviction{DeleteOptions: options}), want)
	}
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: "runs"}}
	refused("to suspend a Job, which Kueue starts again at once",
		owner.Patch(t.Context(), job, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"suspend":true}}`))), "spec.suspend: Kueue would start the job again")
	var now v1.Pod
	if s.get(t, &now, pod.Namespace, pod.Name); now.DeletionTimestamp != nil {
		t.Errorf("the pod is being deleted: %v", now.DeletionTimestamp)
	}

	s.computePool(t, fourOfSixteen+"\n  maxTerminationGracePeriodSeconds: 3600")
	s.waitFor(t, "a pool that allows an hour takes such a job", func(ctx context.Context) (bool, string) {
		err := owner.Create(ctx, s.slowJob("long", 3600), client.DryRunAll)
		return err == nil, errorText(err)
	})
}
