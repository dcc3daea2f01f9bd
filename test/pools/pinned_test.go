// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/internal/transcript"
	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/elasticjob"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// protectedJob creates a Job that must not be preempted, as package elasticjob does.
func (s *scenario) protectedJob(t *testing.T, tenant, name string, w work) {
	t.Helper()
	class := &kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: names.ProtectedClass}, Value: names.ProtectedPriority}
	if err := s.Create(t.Context(), class); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	w.labels = map[string]string{kueue.LabelPriorityClass: names.ProtectedClass}
	w.annotations = map[string]string{kueue.AnnotationAdmissionGatedBy: names.GateProtected}
	s.job(t, tenant, name, w)
}

// gatedStill reports whether a job has not been admitted.
func (s *scenario) gatedStill(t *testing.T, tenant, name string) bool {
	t.Helper()
	var job batchv1.Job
	s.get(t, &job, s.tenant(tenant), name)
	return job.Annotations[kueue.AnnotationAdmissionGatedBy] == names.GateProtected
}

// podUIDs returns the UIDs of the pods of a job.
func (s *scenario) podUIDs(t *testing.T, tenant, job string) (out []string) {
	t.Helper()
	for _, p := range s.pods(t, tenant, job) {
		if p.DeletionTimestamp == nil {
			out = append(out, string(p.UID))
		}
	}
	slices.Sort(out)
	return out
}

// TestReclaimSparesPins is scenario 21: a reclaim takes borrowed devices of any priority, and never
// pinned ones.
func TestReclaimSparesPins(t *testing.T) {
	s := newScenario(t, dgx(2)...)
	s.tenants(t, "a", "b")
	s.computePool(t, `
  poolType: gpu
  capacity: {total: 16}
  quotas: [{tenant: POOL-a, limit: 16, guaranteed: 8}, {tenant: POOL-b, limit: 16, guaranteed: 8}]`)
	s.ready(t)
	s.protectedJob(t, "a", "safe", work{pods: 8, gpus: 1})
	s.running(t, "a", "safe", 8)
	before := s.podUIDs(t, "a", "safe")
	s.jobs(t, "a", "high", 8, work{gpus: 1, priority: 1000})
	s.waitBound(t, map[string]int64{"a": 16})
	s.jobs(t, "b", "low", 8, work{gpus: 1})
	s.waitBound(t, map[string]int64{"a": 8, "b": 8})
	s.settled(t)
	evicted := s.evicted("a")
	if len(evicted) != 8 || evicted["safe"] > 0 {
		t.Errorf("evicted %v, want the eight that borrowed", evicted)
	}
	if after := s.podUIDs(t, "a", "safe"); !slices.Equal(before, after) {
		t.Errorf("the pinned job's pods are %v, were %v", after, before)
	}
	if share := s.share(s.status(t), "a"); share.Pinned != 8 || share.Used != 8 || share.Borrowed != 0 {
		t.Errorf("tenant a's share: %+v, want 8 pinned, 8 used and none borrowed", share)
	}
}

// TestPinAboveGuarantee checks that a job above its tenant's guarantee takes unguaranteed devices before
// it is admitted, and returns them when it has ended. No other tenant gets them meanwhile.
func TestPinAboveGuarantee(t *testing.T) {
	s := newScenario(t, dgx(3)...)
	s.tenants(t, "a", "b")
	s.computePool(t, `
  poolType: gpu
  capacity: {total: 24}
  quotas: [{tenant: POOL-a, guaranteed: 4, protectedLimit: 12}, {tenant: POOL-b, guaranteed: 8}]`)
	s.ready(t)
	s.protectedJob(t, "a", "safe", work{pods: 12, gpus: 1})
	pods := s.running(t, "a", "safe", 12)
	s.waitQuotas(t, map[string]gpuQuota{"cohort": {4, -1, -1}, "a": {12, 12, -1}, "b": {8, 16, -1}})
	s.jobs(t, "b", "greedy", 20, work{gpus: 1, priority: 1000})
	s.waitBound(t, map[string]int64{"a": 12, "b": 12})
	s.settled(t)
	if got := s.evictions(); len(got) > 0 || s.counts("a").running != 12 {
		t.Errorf("%d of 12 pods run, evictions: %+v", s.counts("a").running, got)
	}
	for _, p := range pods {
		s.end(t, p)
	}
	s.waitQuotas(t, map[string]gpuQuota{"cohort": {12, -1, -1}, "a": {4, 20, -1}, "b": {8, 16, -1}})
	s.waitBound(t, map[string]int64{"a": 0, "b": 20})
}

// TestPinBelowGuarantees checks that devices guaranteed to another tenant are not given away even if
// unused, that a job that fits is not held back by one that does not, and that the waiting one is
// admitted once there is room.
func TestPinBelowGuarantees(t *testing.T) {
	s := newScenario(t, dgx(2)...)
	s.tenants(t, "a", "b")
	pool := func(guaranteedToB int) {
		s.computePool(t, fmt.Sprintf(`
  poolType: gpu
  capacity: {total: 16}
  quotas: [{tenant: POOL-a, guaranteed: 4, protectedLimit: 16}, {tenant: POOL-b, guaranteed: %d}]`, guaranteedToB))
	}
	pool(8)
	s.ready(t)
	s.protectedJob(t, "a", "wide", work{pods: 12, gpus: 1})
	s.protectedJob(t, "a", "narrow", work{pods: 4, gpus: 1})
	s.running(t, "a", "narrow", 4)
	s.settled(t)
	if !s.gatedStill(t, "a", "wide") || s.gatedStill(t, "a", "narrow") {
		t.Errorf("gated: wide %t, narrow %t; want only wide", s.gatedStill(t, "a", "wide"), s.gatedStill(t, "a", "narrow"))
	}
	if share := s.share(s.status(t), "a"); share.Pinned != 4 || share.Pending != 1 {
		t.Errorf("tenant a's share: %+v, want 4 pinned and 1 pending", share)
	}
	pool(0)
	s.running(t, "a", "wide", 12)
	s.waitQuotas(t, map[string]gpuQuota{"cohort": {0, -1, -1}, "a": {16, 0, -1}, "b": {0, 16, -1}})
}

// TestPinRefusals checks the reasons that a waiting job that must not be preempted reports: it can never
// start, its tenant's protected limit is reached, or it would take the guarantees of others. It is
// admitted when the reason is gone.
func TestPinRefusals(t *testing.T) {
	s := newScenario(t, dgx(2)...)
	s.pool(t, `
  poolType: gpu
  capacity: {total: 16}
  quotas: [{tenant: POOL-a, guaranteed: 4, protectedLimit: 8, limit: 12}, {tenant: POOL-b, guaranteed: 8, protectedLimit: 16}]`, "a", "b")
	protected := func(tenant, name string, replicas int) {
		s.elasticJob(t, tenant, name, fmt.Sprintf(`
  preemptible: false
  scaling: {minReplicas: %[1]d, maxReplicas: %[1]d, gpuPerReplica: 1}`, replicas))
	}
	says := func(tenant, name, reason, want string) {
		t.Helper()
		want = strings.ReplaceAll(want, "POOL", s.name)
		for _, kind := range []string{poolv1alpha1.ConditionAdmitted, poolv1alpha1.ConditionProtectedCapacityGranted} {
			if got := s.condition(t, tenant, name, kind, metav1.ConditionFalse, reason); !strings.Contains(got, want) {
				t.Errorf("%s of %s says %q, want %q in it", kind, name, got, want)
			}
		}
	}
	protected("a", "runs", 4)
	s.scaledTo(t, "a", "runs", 4)
	protected("a", "never", 9)
	says("a", "never", names.ProtectedNever, "of tenant POOL-a may hold 8 devices (protectedLimit in quotas, or guaranteed without it), and this one asks for 9: it can never start")
	protected("a", "huge", 13)
	says("a", "huge", elasticjob.ReasonExceedsLimit, "asks for 13 devices, and the limit of tenant POOL-a in ComputePool POOL is 12: it can never start")
	protected("a", "later", 5)
	says("a", "later", names.ProtectedAtLimit, "of tenant POOL-a may hold 8 devices (protectedLimit in quotas, or guaranteed without it) and hold 4: this job's 5 wait")
	protected("b", "greedy", 13)
	says("b", "greedy", names.ProtectedTakes, "needs 5 devices beyond what is guaranteed to tenant POOL-b, and 4 are neither guaranteed to others")

	s.remove(t, s.elastic(t, "a", "runs"))
	s.scaledTo(t, "a", "later", 5)
	s.condition(t, "a", "later", poolv1alpha1.ConditionProtectedCapacityGranted, metav1.ConditionTrue, elasticjob.ReasonPinned)
	var base batchv1.Job
	if s.get(t, &base, s.tenant("a"), names.BaseJob("later")); base.Annotations[names.AnnotationProtection] != "" {
		t.Errorf("the job runs, and its Job says %q", base.Annotations[names.AnnotationProtection])
	}
	if !s.gatedStill(t, "b", names.BaseJob("greedy")) {
		t.Error("a job was let in that takes what others are guaranteed")
	}
}

// TestPinOnLostNodes checks that a lost node reduces the unguaranteed devices; pinned ones stay, and the
// job with them.
func TestPinOnLostNodes(t *testing.T) {
	s := newScenario(t, dgx(3)...)
	s.tenants(t, "a", "b")
	s.computePool(t, "  poolType: gpu\n  capacity: {total: 24}\n  quotas: [{tenant: POOL-a, limit: 16, protectedLimit: 16}, {tenant: POOL-b, guaranteed: 8}]")
	s.ready(t)
	s.protectedJob(t, "a", "safe", work{pods: 2, gpus: 8})
	used := map[string]bool{}
	for _, p := range s.running(t, "a", "safe", 2) {
		used[p.Spec.NodeName] = true
	}
	free := slices.IndexFunc(s.nodes, func(n string) bool { return !used[n] })
	before := s.podUIDs(t, "a", "safe")
	s.setReady(t, s.nodes[free], v1.ConditionFalse)
	s.waitPool(t, "the pool is short of the lost node", func(status *poolv1alpha1.ComputePoolStatus) bool {
		return status.States.Failed == 8 && status.Phase == poolv1alpha1.PoolDegraded
	})
	s.waitQuotas(t, map[string]gpuQuota{"cohort": {0, -1, -1}, "a": {16, 0, -1}, "b": {8, 16, -1}})
	s.jobs(t, "b", "one", 8, work{gpus: 1, priority: 1000})
	s.settled(t)
	if after := s.podUIDs(t, "a", "safe"); !slices.Equal(before, after) {
		t.Errorf("the pinned job's pods are %v, were %v; evictions %+v", after, before, s.evictions())
	}
	s.setReady(t, s.nodes[free], v1.ConditionTrue)
	s.waitBound(t, map[string]int64{"a": 16, "b": 8})
}

// TestPinOfGoneJob checks that a job that is deleted before its admission, or while it runs, leaves
// nothing pinned.
func TestPinOfGoneJob(t *testing.T) {
	s := newScenario(t, dgx(1)...)
	s.tenants(t, "a")
	s.computePool(t, "  poolType: gpu\n  capacity: {total: 8}\n  quotas: [{tenant: POOL-a, protectedLimit: 8}]")
	s.ready(t)
	s.protectedJob(t, "a", "first", work{pods: 6, gpus: 1})
	s.running(t, "a", "first", 6)
	s.protectedJob(t, "a", "second", work{pods: 6, gpus: 1})
	s.waitFor(t, "the second job waits", func(context.Context) (bool, string) {
		share := s.share(s.status(t), "a")
		return share.Pinned == 6 && share.Pending == 1, fmt.Sprintf("%+v", share)
	})
	s.remove(t, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: s.tenant("a"), Name: "first"}})
	s.running(t, "a", "second", 6)
	s.remove(t, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: s.tenant("a"), Name: "second"}})
	s.waitQuotas(t, map[string]gpuQuota{"cohort": {8, -1, -1}, "a": {0, 8, -1}})
	s.waitFor(t, "no workload is left", func(ctx context.Context) (bool, string) {
		var list kueue.WorkloadList
		err := s.List(ctx, &list, client.InNamespace(s.tenant("a")))
		return err == nil && len(list.Items) == 0, fmt.Sprint(len(list.Items), err)
	})
}

// TestPinDerivation checks that the pool controller needs no saved state after it was killed: pins are
// derived from jobs. An unchanged pool is not written.
func TestPinDerivation(t *testing.T) {
	s := newNamedScenario(t, newTestEnv(t), "training", dgx(2)...)
	s.tenants(t, "a", "b")
	pool := func(guaranteedToB int) {
		s.computePool(t, fmt.Sprintf(`
  poolType: gpu
  capacity: {total: 16}
  quotas: [{tenant: POOL-a, protectedLimit: 16}, {tenant: POOL-b, guaranteed: %d, protectedLimit: 16}]`, guaranteedToB))
	}
	pool(4)
	s.ready(t)
	s.protectedJob(t, "a", "safe", work{pods: 12, gpus: 1})
	s.running(t, "a", "safe", 12)
	before := s.podUIDs(t, "a", "safe")
	if err := s.pools.Kill(); err != nil {
		t.Fatal(err)
	}
	s.protectedJob(t, "b", "next", work{pods: 4, gpus: 1})
	s.protectedJob(t, "b", "too-much", work{pods: 2, gpus: 1})
	s.jobs(t, "b", "urgent", 4, work{gpus: 1, priority: 1000})
	if err := s.pools.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.running(t, "b", "next", 4)
	s.waitQuotas(t, map[string]gpuQuota{"cohort": {0, -1, -1}, "a": {12, 4, -1}, "b": {4, 12, -1}})
	s.settled(t)
	if after := s.podUIDs(t, "a", "safe"); !slices.Equal(before, after) {
		t.Errorf("the pinned job's pods are %v, were %v; evictions %+v", after, before, s.evictions())
	}
	if !s.gatedStill(t, "b", "too-much") {
		t.Error("a job was let in for which nothing is left")
	}
	s.showPool(t)

	const rounds = `controller_runtime_reconcile_total{controller="computepool",result="success"}`
	patches, looked := s.patches(t), s.metric(t, rounds)
	if patches == 0 || looked < 1 {
		t.Fatalf("%.0f patches in %.0f rounds: the metrics are not those that were meant", patches, looked)
	}
	plain := gpuPod(s.tenant("a"), "plain", 0).Obj()
	if err := s.Create(t.Context(), plain); err != nil {
		t.Fatal(err)
	}
	s.waitFor(t, "a pod that changes nothing runs", func(context.Context) (bool, string) {
		var pod v1.Pod
		s.get(t, &pod, s.tenant("a"), "plain")
		return pod.Status.Phase == v1.PodRunning, string(pod.Status.Phase)
	})
	s.waitFor(t, "the pools are looked at for it", func(context.Context) (bool, string) {
		n := s.metric(t, rounds)
		return n > looked, fmt.Sprintf("%.0f rounds, before %.0f", n, looked)
	})
	if after := s.patches(t); after != patches {
		t.Errorf("the controller has patched %.0f times, and nothing has changed", after-patches)
	}
}

// showPool writes the transcript of a full pool, and of the jobs that wait for it.
func (s *scenario) showPool(t *testing.T) {
	t.Helper()
	shown := transcript.New("pool", "--kubeconfig", s.Kubeconfig())
	shown.HideTimes()
	shown.Hide("(job-[a-z0-9-]+)-[0-9a-f]{5}", "$1-00000")
	shown.Say("A pool of 16 GPUs that two tenants share. Both have jobs that must not be preempted, and with\nthem all that they may hold for certain; tenant b has jobs that wait.")
	shown.Run(t, "pool")
	shown.Run(t, "pool", "top", s.name)
	shown.Run(t, "explain", "-n", s.tenant("b"), "job/too-much")
	shown.Run(t, "topology", "-g", "node")
	shown.Compare(t)
}

// patches returns the number of the pool controller's patches and applies.
func (s *scenario) patches(t *testing.T) (sum float64) {
	t.Helper()
	for line := range strings.Lines(s.scrape(t)) {
		if labels, value, ok := strings.Cut(strings.TrimSpace(line), "} "); ok && strings.HasPrefix(labels, "rest_client_requests_total") && strings.Contains(labels, `method="PATCH"`) {
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				t.Fatal(err)
			}
			sum += n
		}
	}
	return sum
}
