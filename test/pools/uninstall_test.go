// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/testkit"
	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	"github.com/nvtopo/nvtopo/pkg/cli"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// operatorsQueues are two queues of tenant b that an operator created: one has the placement check, the
// other does not.
const operatorsQueues = `apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: POOL-own}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: POOL-checked}
spec:
  namespaceSelector: {}
  admissionChecksStrategy: {admissionChecks: [{name: nvtopo-placement}]}
  resourceGroups:
  - coveredResources: [nvidia.com/gpu]
    flavors: [{name: POOL-own, resources: [{name: nvidia.com/gpu, nominalQuota: 4}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: POOL-plain}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [nvidia.com/gpu]
    flavors: [{name: POOL-own, resources: [{name: nvidia.com/gpu, nominalQuota: 4}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: checked, namespace: POOL-b}
spec: {clusterQueue: POOL-checked}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: plain, namespace: POOL-b}
spec: {clusterQueue: POOL-plain}`

// TestUninstallBesideKueue checks that `nvtopo uninstall` leaves the jobs that Kueue has admitted
// running, with their Workloads, and an operator's own queues, which admit new jobs afterwards. Queues of
// pools are deleted once their jobs have ended.
func TestUninstallBesideKueue(t *testing.T) {
	s := newScenarioOn(t, newTestEnv(t), dgx(2)...)
	s.tenants(t, "a", "b")
	s.computePool(t, `
  poolType: gpu
  capacity: {total: 16}
  quotas: [{tenant: POOL-a, limit: 8}]`)
	s.ready(t)
	s.yaml(t, operatorsQueues)
	s.job(t, "a", "train", work{pods: 2, gpus: 2})
	s.elasticJob(t, "a", "grow", `
  priority: 5
  scaling: {minReplicas: 1, maxReplicas: 1, gpuPerReplica: 2}`)
	s.running(t, "a", "train", 2)
	s.running(t, "a", names.BaseJob("grow"), 1)
	s.waitFor(t, "every pod is metered", func(context.Context) (bool, string) {
		pods := s.podsOf(t, "a")
		return len(pods) == 3 && !slices.ContainsFunc(pods, func(p *v1.Pod) bool { return !slices.Contains(p.Finalizers, names.FinalizerMetering) }), fmt.Sprint(len(pods), " pods")
	})
	s.stopPrograms(t) // the scheduler writes a gang's place after its pods are bound
	before, kept := s.lastingPods(t, "a"), s.operatorsObjects(t)

	said := s.uninstall(t)
	t.Log(said)
	for _, want := range []string{
		"changed ClusterQueue " + s.name + "-checked, without admission check nvtopo-placement", "deleted AdmissionCheck nvtopo-placement",
		"kept 2 of kind WorkloadPriorityClass (nvtopo-extra-p5, nvtopo-p5): priority of jobs; --purge removes it",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("the command does not say %q", want)
		}
	}
	if diff := cmp.Diff(before, s.lastingPods(t, "a")); diff != "" {
		t.Errorf("pods (-before +after):\n%s", diff)
	}
	s.nothingHeld(t, "a")
	for _, job := range []string{"train", names.BaseJob("grow")} {
		w, err := s.workload(t.Context(), "a", job)
		if err != nil || w == nil || !meta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadAdmitted) {
			t.Errorf("the Workload of job %s is not admitted any more: %+v, %v", job, w, err)
		}
	}
	queue := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: names.ClusterQueue(s.name, s.tenant("a"), "")}}
	s.get(t, queue, "", queue.Name)
	if queue.DeletionTimestamp == nil {
		t.Errorf("ClusterQueue %s is not being deleted", queue.Name)
	}
	if diff := cmp.Diff(kept, s.operatorsObjects(t)); diff != "" {
		t.Errorf("queues and flavor of the operator (-before +after):\n%s", diff)
	}

	// Our program with kube-scheduler's own configuration is one.
	if _, err := s.StartScheduler(t.Context(), devcluster.SchedulerOptions{Binary: testkit.Program(t, "nvtopo-scheduler")}); err != nil {
		t.Fatal(err)
	}
	for _, queue := range []string{"plain", "checked"} {
		job := s.jobObject("b", queue, &work{gpus: 2})
		job.Labels = map[string]string{kueue.LabelQueue: queue}
		job.Spec.Template.Spec.SchedulerName = v1.DefaultSchedulerName
		if err := s.Create(t.Context(), job); err != nil {
			t.Fatal(err)
		}
		s.running(t, "b", queue, 1)
	}
	s.nothingHeld(t, "b")

	for _, p := range s.podsOf(t, "a") {
		s.end(t, p)
	}
	s.waitFor(t, "job train has ended", func(context.Context) (bool, string) {
		var job batchv1.Job
		s.get(t, &job, s.tenant("a"), "train")
		return job.Status.Succeeded == 2, fmt.Sprintf("%+v", job.Status)
	})
	check := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: names.CheckPlacementObject}}
	for _, o := range []client.Object{queue, check} {
		s.waitGone(t, o)
	}
	s.waitFor(t, "Kueue's objects of the pool are gone", func(ctx context.Context) (bool, string) {
		left := s.objectsOfPool(ctx, t)
		return len(left) == 0, strings.Join(left, ", ")
	})
}

// lastingPods returns a tenant's pods, by name, with the fields that must not change while they run.
func (s *scenario) lastingPods(t *testing.T, tenant string) map[string]*v1.Pod {
	t.Helper()
	out := map[string]*v1.Pod{}
	for _, p := range s.podsOf(t, tenant) {
		p.ResourceVersion, p.ManagedFields, p.Finalizers, p.Generation = "", nil, nil, 0
		out[p.Name] = p
	}
	return out
}

// operatorsObjects returns the operator's Kueue objects, without the fields that uninstall and Kueue
// change.
func (s *scenario) operatorsObjects(t *testing.T) (out []client.Object) {
	t.Helper()
	get := func(o client.Object, namespace, name string) {
		s.get(t, o, namespace, name)
		o.SetResourceVersion("")
		o.SetManagedFields(nil)
		o.SetGeneration(0)
		o.SetFinalizers(nil)
		out = append(out, o)
	}
	get(&kueue.ResourceFlavor{}, "", s.name+"-own")
	for _, name := range []string{"checked", "plain"} {
		cq, lq := &kueue.ClusterQueue{}, &kueue.LocalQueue{}
		get(cq, "", s.name+"-"+name)
		get(lq, s.tenant("b"), name)
		cq.Spec.AdmissionChecksStrategy, cq.Status = nil, kueue.ClusterQueueStatus{}
	}
	return out
}

// stopPrograms ends nvtopo's programs, which here are processes beside the cluster: in a cluster they end
// with their pods.
func (s *scenario) stopPrograms(t *testing.T) {
	t.Helper()
	s.StopExporters(s.nodes...)
	if err := s.pools.Kill(); err != nil {
		t.Fatal(err)
	}
	for _, scheduler := range s.Schedulers() {
		if err := scheduler.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// uninstall runs `nvtopo uninstall` as the administrator and returns its output.
func (s *scenario) uninstall(t *testing.T) string {
	t.Helper()
	var out bytes.Buffer
	cmd := cli.New("nvtopo")
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs([]string{"uninstall", "--kubeconfig", s.Kubeconfig()})
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatalf("nvtopo uninstall: %v\n%s", err, out.String())
	}
	return out.String()
}

// nothingHeld checks that no pod, Job or Workload of a tenant has a finalizer of nvtopo's.
func (s *scenario) nothingHeld(t *testing.T, tenant string) {
	t.Helper()
	for _, list := range []client.ObjectList{&v1.PodList{}, &batchv1.JobList{}, &kueue.WorkloadList{}} {
		if err := s.List(t.Context(), list, client.InNamespace(s.tenant(tenant))); err != nil {
			t.Fatal(err)
		}
		items, err := meta.ExtractList(list)
		if err != nil {
			t.Fatal(err)
		}
		if len(items) == 0 {
			t.Errorf("%T of tenant %s is empty", list, tenant)
		}
		for _, item := range items {
			o, err := meta.Accessor(item)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(strings.Join(o.GetFinalizers(), " "), "nvtopo.dev") {
				t.Errorf("%T %s has the finalizers %v", item, o.GetName(), o.GetFinalizers())
			}
		}
	}
}
