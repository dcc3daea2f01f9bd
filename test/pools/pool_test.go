// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/internal/testkit"
	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
)

// trainingPool is the pool of the requirement's example: 64 GPUs of which 8 are reserved, and three
// tenants.
const trainingPool = `
  poolType: gpu
  capacity: {total: 64, reserved: 8}
  quotas:
  - {tenant: POOL-a, limit: 32, guaranteed: 16}
  - {tenant: POOL-b, limit: 24, guaranteed: 8}
  - {tenant: POOL-c, limit: 16}`

// TestExamplePool is scenario 1: the status and the quotas of the requirement's example.
func TestExamplePool(t *testing.T) {
	s := newScenario(t, dgx(8)...)
	s.tenants(t, "a", "b", "c")
	s.computePool(t, trainingPool)
	s.ready(t)
	s.waitPool(t, "its nodes are counted", func(status *poolv1alpha1.ComputePoolStatus) bool {
		return status.Discovered == 64 && status.ReadyNodes == 8
	})
	got := s.status(t)
	type numbers struct{ Total, Reserved, Available, Allocated int32 }
	want := numbers{Total: 64, Reserved: 8, Available: 56}
	if diff := cmp.Diff(want, numbers{got.TotalCapacity, got.ReservedCapacity, got.AvailableCapacity, got.AllocatedCapacity}); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(&poolv1alpha1.DeviceStates{Available: 56, Reserved: 8}, got.States); diff != "" {
		t.Errorf("states (-want +got):\n%s", diff)
	}
	for _, kind := range []string{
		poolv1alpha1.ConditionCapacityMismatch, poolv1alpha1.ConditionGuaranteesOvercommitted, poolv1alpha1.ConditionReserveAdvice,
		poolv1alpha1.ConditionForeignUse, poolv1alpha1.ConditionNodesShared,
	} {
		if !meta.IsStatusConditionFalse(got.Conditions, kind) {
			t.Errorf("condition %s: %+v", kind, meta.FindStatusCondition(got.Conditions, kind))
		}
	}
	s.waitQuotas(t, map[string]gpuQuota{"cohort": {32, -1, -1}, "a": {16, 16, -1}, "b": {8, 16, -1}, "c": {0, 16, -1}})
}

// TestRefusedPools is scenario 2, as far as it concerns pools: wrong values are refused, with the name of
// the field.
func TestRefusedPools(t *testing.T) {
	s := newScenario(t)
	s.computePool(t, "  poolType: gpu\n  capacity: {total: 8}")
	for what, tc := range map[string]struct{ spec, want string }{
		"reserved above the total":   {spec: "{poolType: gpu, capacity: {total: 64, reserved: 65}}", want: "capacity.reserved"},
		"guaranteed above the limit": {spec: "{poolType: gpu, capacity: {total: 64}, quotas: [{tenant: a, guaranteed: 33, limit: 32}]}", want: "guaranteed: must be at most limit"},
		"protected above the limit":  {spec: "{poolType: gpu, capacity: {total: 64}, quotas: [{tenant: a, protectedLimit: 33, limit: 32}]}", want: "protectedLimit: must be at most limit"},
		"a queue that protects more": {spec: "{poolType: gpu, capacity: {total: 64}, queues: [{name: q, protectedCapacity: 33, maxCapacity: 32}]}", want: "protectedCapacity: must be at most maxCapacity"},
		"more guaranteed than there is": {
			spec: "{poolType: gpu, capacity: {total: 64, reserved: 8}, quotas: [{tenant: a, guaranteed: 40}, {tenant: b, guaranteed: 17}]}", want: "sum of guaranteed",
		},
		"an unknown strategy": {spec: "{poolType: gpu, capacity: {total: 8}, virtualization: {enabled: true, strategy: foo}}", want: "virtualization.strategy"},
		"another type":        {spec: "{poolType: npu, capacity: {total: 8}}", want: "poolType: cannot be changed"},
		"a tenant twice":      {spec: "{poolType: gpu, capacity: {total: 8}, quotas: [{tenant: a}, {tenant: a}]}", want: "duplicate entries"},
	} {
		err := s.tryYAML(t.Context(), "apiVersion: pool.nvtopo.dev/v1alpha1\nkind: ComputePool\nmetadata: {name: POOL}\nspec: "+tc.spec)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want an error with %q", what, err, tc.want)
		}
	}
	err := s.tryYAML(t.Context(), "apiVersion: pool.nvtopo.dev/v1alpha1\nkind: ComputePool\nmetadata: {name: default}\nspec: {poolType: gpu, capacity: {total: 8}}")
	if err == nil || !strings.Contains(err.Error(), "metadata.name") {
		t.Errorf("a pool called default: got %v, want an error that names metadata.name", err)
	}
}

// TestTenantLimit is scenario 3: the tenant's limit holds even if devices are free; and scenario 53: the
// metrics report it, until the jobs are over.
func TestTenantLimit(t *testing.T) {
	s := newScenario(t, dgx(8)...)
	s.tenants(t, "a", "b", "c")
	s.computePool(t, trainingPool)
	s.ready(t)
	s.jobs(t, "a", "one", 100, work{gpus: 1})
	s.waitFor(t, "32 jobs run and 68 wait", func(context.Context) (bool, string) {
		c := s.counts("a")
		return c.bound == 32 && c.running == 32 && c.admitted == 32 && c.waiting == 68, fmt.Sprintf("%+v", c)
	})
	s.settled(t)
	if c := s.counts("a"); c.bound != 32 || c.waiting != 68 {
		t.Errorf("settled: %+v, want 32 bound and 68 waiting", c)
	}
	s.waitPool(t, "the status shows what is held", func(status *poolv1alpha1.ComputePoolStatus) bool {
		a := s.share(status, "a")
		return status.AllocatedCapacity == 32 && status.AvailableCapacity == 24 && status.UtilizationPercent == 50 &&
			a.Used == 32 && a.Borrowed == 16 && a.Pending == 68
	})
	s.waitMetrics(t, map[string]float64{
		`compute_pool_usage{pool="POOL",resource_type="nvidia.com/gpu",tenant_id="POOL-a"}`: 32,
		`compute_pool_capacity{pool="POOL"}`:                                                64,
		`compute_pool_reserved{pool="POOL"}`:                                                8,
		`compute_pool_allocated{pool="POOL"}`:                                               32,
		`compute_pool_available{pool="POOL"}`:                                               24,
		`compute_pool_tenant_limit{pool="POOL",tenant_id="POOL-a"}`:                         32,
		`compute_pool_tenant_guaranteed{pool="POOL",tenant_id="POOL-b"}`:                    8,
		`compute_pool_tenant_pinned{pool="POOL",tenant_id="POOL-c"}`:                        0,
		`compute_queue_oldest_pending_seconds{pool="POOL",queue="POOL.POOL-b"}`:             0,
	})
	// A lower bound, which a slow machine only exceeds: the job existed before the last change.
	if waited := s.metric(t, `compute_queue_oldest_pending_seconds{pool="POOL",queue="POOL.POOL-a"}`); waited < quiet.Seconds() {
		t.Errorf("the oldest job has waited for %.0f s by the metric, and settling took %s", waited, quiet)
	}
	jobs := client.InNamespace(s.tenant("a"))
	s.waitFor(t, "the API server deletes all jobs", func(ctx context.Context) (bool, string) { // a busy one breaks off a long response
		err := s.DeleteAllOf(ctx, &batchv1.Job{}, jobs, client.PropagationPolicy(metav1.DeletePropagationBackground))
		return err == nil, fmt.Sprint(err)
	})
	s.waitFor(t, "the tenant's usage is gone from the metrics", func(context.Context) (bool, string) {
		text := s.scrape(t)
		return !strings.Contains(text, fmt.Sprintf("tenant_id=%q", s.tenant("a"))) || !strings.Contains(text, "compute_pool_usage{pool=\""+s.name+"\""), text
	})
}

// TestSmallPool is scenarios 5 and 6: a small pool, filled by two tenants.
func TestSmallPool(t *testing.T) {
	s := newScenario(t, dgx(1)...)
	s.tenants(t, "a", "b")
	s.computePool(t, `
  poolType: gpu
  capacity: {total: 8}
  quotas: [{tenant: POOL-a, limit: 4}, {tenant: POOL-b, limit: 4}]`)
	s.ready(t)
	s.job(t, "a", "first", work{gpus: 2})
	first := s.running(t, "a", "first", 1)
	s.waitPool(t, "2 of 8 are allocated", func(status *poolv1alpha1.ComputePoolStatus) bool {
		return status.AvailableCapacity == 6 && status.UtilizationPercent == 25 && status.States.Allocated == 2 && status.States.Available == 6
	})
	s.job(t, "a", "second", work{gpus: 3})
	s.waits(t, "a", "second")
	s.end(t, first[0])
	s.running(t, "a", "second", 1)

	s.job(t, "b", "huge", work{pods: 5, gpus: 1})
	s.waitFor(t, "the job that never fits says so", func(ctx context.Context) (bool, string) {
		w, err := s.workload(ctx, "b", "huge")
		if err != nil || w == nil {
			return false, fmt.Sprint(w, err)
		}
		c := meta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadQuotaReserved)
		return c != nil && strings.Contains(c.Message, "maximum capacity (4)"), fmt.Sprint(c)
	})
}

// TestTenantWithoutQuota is scenario 7: jobs of a tenant that the pool does not list wait, until a
// defaultQuota lets them use unguaranteed devices.
func TestTenantWithoutQuota(t *testing.T) {
	s := newScenario(t, dgx(8)...)
	s.tenants(t, "a", "b", "x")
	s.computePool(t, trainingPool)
	s.ready(t)
	s.job(t, "x", "refused", work{gpus: 1})
	s.waitFor(t, "the job has no queue", func(ctx context.Context) (bool, string) {
		w, err := s.workload(ctx, "x", "refused")
		if err != nil || w == nil {
			return false, fmt.Sprint(w, err)
		}
		c := meta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadQuotaReserved)
		return c != nil && c.Status == metav1.ConditionFalse && strings.Contains(c.Message, "LocalQueue"), fmt.Sprint(c)
	})
	// The others use their guarantees, so that only unguaranteed devices are left.
	s.job(t, "a", "own", work{pods: 2, gpus: 8})
	s.job(t, "b", "own", work{gpus: 8})
	s.running(t, "a", "own", 2)
	s.running(t, "b", "own", 1)
	s.computePool(t, trainingPool+"\n  defaultQuota: {}")
	s.running(t, "x", "refused", 1)
	s.jobs(t, "x", "one", 39, work{gpus: 1})
	s.waitBound(t, map[string]int64{"a": 16, "b": 8, "x": 32})
	s.settled(t)
	if diff := cmp.Diff(map[string]int64{"a": 16, "b": 8, "x": 32}, s.bound("a", "b", "x")); diff != "" {
		t.Errorf("settled (-want +got):\n%s", diff)
	}
}

// TestPodsWithoutQueue is scenario 8: without the name of a queue, a tenant's pod runs if it has no
// devices.
func TestPodsWithoutQueue(t *testing.T) {
	s := newScenario(t, dgx(1)...)
	s.tenants(t, "a")
	s.computePool(t, "  poolType: gpu\n  capacity: {total: 8}\n  quotas: [{tenant: POOL-a}]")
	s.ready(t)
	for name, gpus := range map[string]int64{"plain": 0, "greedy": 1} {
		pod := gpuPod(s.tenant("a"), name, gpus).Obj()
		if gpus == 0 {
			pod.Spec.NodeSelector = map[string]string{poolv1alpha1.LabelPool: s.name}
		}
		if err := s.Create(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	s.waitFor(t, "the pod without devices runs", func(ctx context.Context) (bool, string) {
		var pod v1.Pod
		err := s.Get(ctx, client.ObjectKey{Namespace: s.tenant("a"), Name: "plain"}, &pod)
		return err == nil && pod.Status.Phase == v1.PodRunning, fmt.Sprint(pod.Status, err)
	})
	s.settled(t)
	var greedy v1.Pod
	s.get(t, &greedy, s.tenant("a"), "greedy")
	if len(greedy.Spec.SchedulingGates) == 0 || greedy.Spec.NodeName != "" {
		t.Errorf("the pod with a device: gates %v, node %q; want it gated", greedy.Spec.SchedulingGates, greedy.Spec.NodeName)
	}
}

// TestRandomStatus is scenario 10: jobs come and go at random. No number of the status is ever negative,
// and after the last change the status equals the sum over pods: in the end zero.
func TestRandomStatus(t *testing.T) {
	s := newScenario(t, dgx(2)...)
	s.tenants(t, "a", "b")
	s.computePool(t, `
  poolType: gpu
  capacity: {total: 16, reserved: 2}
  quotas: [{tenant: POOL-a, limit: 10, guaranteed: 4}, {tenant: POOL-b, guaranteed: 4}]`)
	s.ready(t)
	rnd := rand.New(rand.NewPCG(17, 10))
	type key struct{ tenant, job string }
	var there []key
	for i := range 40 {
		if len(there) > 6 || len(there) > 0 && rnd.IntN(3) == 0 {
			n := rnd.IntN(len(there))
			s.remove(t, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: s.tenant(there[n].tenant), Name: there[n].job}})
			there = slices.Delete(there, n, n+1)
		} else {
			k := key{tenant: []string{"a", "b"}[rnd.IntN(2)], job: fmt.Sprint("job-", i)}
			s.job(t, k.tenant, k.job, work{pods: 1 + rnd.Int32N(2), gpus: 1 + rnd.Int64N(4), priority: rnd.Int32N(3)})
			there = append(there, k)
		}
		if status := s.status(t); least(status) < 0 {
			t.Fatalf("after step %d a number is negative: %+v", i, status)
		}
	}
	s.settled(t)
	s.sumOverPods(t)
	for _, k := range there {
		s.remove(t, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: s.tenant(k.tenant), Name: k.job}})
	}
	s.waitPool(t, "nothing is held", func(status *poolv1alpha1.ComputePoolStatus) bool {
		return status.AllocatedCapacity == 0 && status.AvailableCapacity == 14 && s.share(status, "a").Used+s.share(status, "b").Used == 0
	})
	s.sumOverPods(t)
}

// TestWeights is scenario 14: tenants share devices by their weights.
func TestWeights(t *testing.T) {
	t.Parallel()
	for name, weights := range map[string][2]string{"whole weights": {"3", "1"}, "weights with decimals": {"0.75", "0.25"}} {
		t.Run(name, func(t *testing.T) {
			s := newScenario(t, dgx(2)...)
			s.tenants(t, "a", "b")
			s.computePool(t, fmt.Sprintf(`
  poolType: gpu
  capacity: {total: 16}
  quotas: [{tenant: POOL-a, weight: %s}, {tenant: POOL-b, weight: %s}]`, weights[0], weights[1]))
			s.ready(t)
			s.jobs(t, "b", "one", 20, work{gpus: 1})
			s.waitBound(t, map[string]int64{"b": 16})
			s.jobs(t, "a", "one", 20, work{gpus: 1})
			s.waitBound(t, map[string]int64{"a": 12, "b": 4})
			s.settled(t)
			if diff := cmp.Diff(map[string]int64{"a": 12, "b": 4}, s.bound("a", "b")); diff != "" {
				t.Errorf("settled (-want +got):\n%s", diff)
			}
		})
	}
}

// TestCapacityPolicy checks that queues of policy capacity share devices beyond their guarantees in
// proportion to these.
func TestCapacityPolicy(t *testing.T) {
	s := newScenario(t, dgx(2)...)
	s.tenants(t, "a", "b")
	s.computePool(t, `
  poolType: gpu
  capacity: {total: 16}
  queues:
  - {name: wide, policy: capacity, guaranteedCapacity: 6, tenants: [POOL-a]}
  - {name: narrow, policy: capacity, guaranteedCapacity: 2, weight: 5, tenants: [POOL-b]}`)
	s.ready(t)
	s.jobs(t, "b", "one", 20, work{gpus: 1, queue: "narrow"})
	s.waitBound(t, map[string]int64{"b": 16})
	s.jobs(t, "a", "one", 20, work{gpus: 1, queue: "wide"})
	s.waitBound(t, map[string]int64{"a": 12, "b": 4})
	s.settled(t)
	if diff := cmp.Diff(map[string]int64{"a": 12, "b": 4}, s.bound("a", "b")); diff != "" {
		t.Errorf("settled (-want +got):\n%s", diff)
	}
}

// TestQuotasAndQueues is scenario 17: with both lists the outer limits hold exactly, and the inner ones
// in each part.
func TestQuotasAndQueues(t *testing.T) {
	t.Parallel()
	for _, hierarchy := range []string{"TenantFirst", "QueueFirst"} {
		t.Run(hierarchy, func(t *testing.T) {
			s := newScenario(t, dgx(4)...)
			s.tenants(t, "a", "b")
			s.computePool(t, `
  poolType: gpu
  capacity: {total: 32}
  quotas: [{tenant: POOL-a, limit: 20, guaranteed: 8}, {tenant: POOL-b, limit: 24}]
  queues:
  - {name: high, maxCapacity: 12, guaranteedCapacity: 4}
  - {name: low}
  hierarchy: `+hierarchy)
			if hierarchy == "QueueFirst" { // then a tenant's limit bounds its part of each queue, and not their sum
				s.recorder.read(s.name, func(a *account) { clear(a.limits) })
			}
			s.ready(t)
			s.jobs(t, "a", "high", 16, work{gpus: 1, queue: "high"})
			s.jobs(t, "a", "low", 16, work{gpus: 1, queue: "low"})
			s.jobs(t, "b", "high", 16, work{gpus: 1, queue: "high"})
			s.jobs(t, "b", "low", 16, work{gpus: 1, queue: "low"})
			s.waitFor(t, "the pool is full", func(context.Context) (bool, string) {
				got := s.bound("a", "b")
				return got["a"]+got["b"] == 32, fmt.Sprint(got)
			})
			s.settled(t)
			held := map[string]int32{}
			for _, share := range s.status(t).Shares {
				held[strings.TrimPrefix(share.Tenant, s.name+"-")+"/"+share.Queue] = share.Used
			}
			limits := map[string]int32{"a/": 20, "b/": 24, "a/high": 12, "b/high": 12, "a/low": 20, "b/low": 24}
			if hierarchy == "QueueFirst" {
				limits = map[string]int32{"/high": 12, "/low": 32, "a/high": 12, "b/high": 12, "a/low": 20, "b/low": 24}
			}
			for who, limit := range limits {
				if got, ok := held[who]; !ok || got > limit {
					testkit.Violation(t, "%s holds %d, limit %d; all: %v", who, got, limit, held)
				}
			}
			if sum := held["a/high"] + held["a/low"] + held["b/high"] + held["b/low"]; sum != 32 {
				t.Errorf("%d of 32 are held: %v", sum, held)
			}
		})
	}
}

// TestStopPolicies is scenario 18: the stop policies of a pool.
func TestStopPolicies(t *testing.T) {
	s := newScenario(t, dgx(2)...)
	s.tenants(t, "a")
	pool := func(stop string) {
		s.computePool(t, "  poolType: gpu\n  capacity: {total: 16}\n  quotas: [{tenant: POOL-a}]\n  stopPolicy: "+stop)
	}
	pool("None")
	s.ready(t)
	s.job(t, "a", "runs", work{gpus: 8})
	s.running(t, "a", "runs", 1)
	pool("Hold")
	s.waitStop(t, "Hold")
	s.job(t, "a", "waits", work{gpus: 8})
	s.settled(t)
	if c := s.counts("a"); c.running != 1 || c.waiting != 1 || len(s.evictions()) > 0 {
		t.Errorf("Hold: %+v, evictions %+v; want one that runs, one that waits, and no eviction", c, s.evictions())
	}
	pool("HoldAndDrain")
	s.waitBound(t, map[string]int64{"a": 0})
	if got := s.evictions(); len(got) != 1 || got[0].job != "runs" || got[0].reason != kueue.EvictedByStop {
		t.Errorf("HoldAndDrain: evictions %+v, want the one of the job that ran", got)
	}
	pool("None")
	s.waitBound(t, map[string]int64{"a": 16})
}

// TestDelistedTenant checks that a tenant that is no longer listed keeps its running jobs. No more are
// admitted, and the queue is deleted once it is empty.
func TestDelistedTenant(t *testing.T) {
	s := newScenario(t, dgx(2)...)
	s.tenants(t, "a", "b")
	s.computePool(t, "  poolType: gpu\n  capacity: {total: 16}\n  quotas: [{tenant: POOL-a, guaranteed: 8}, {tenant: POOL-b, guaranteed: 8}]")
	s.ready(t)
	s.job(t, "b", "runs", work{gpus: 8})
	pods := s.running(t, "b", "runs", 1)
	s.computePool(t, "  poolType: gpu\n  capacity: {total: 16}\n  quotas: [{tenant: POOL-a, guaranteed: 8}]")
	s.waitQuotas(t, map[string]gpuQuota{"cohort": {8, -1, -1}, "a": {8, 8, -1}, "b": {0, 0, -1}})
	s.job(t, "b", "late", work{gpus: 1})
	s.settled(t)
	if c := s.counts("b"); c.running != 1 || c.admitted != 1 {
		t.Errorf("tenant b: %+v, want one pod that runs", c)
	}
	s.end(t, pods[0])
	s.waitQuotas(t, map[string]gpuQuota{"cohort": {8, -1, -1}, "a": {8, 8, -1}})
}

// TestDeletedPool is scenario 59: the deletion of a pool.
func TestDeletedPool(t *testing.T) {
	s := newScenario(t, dgx(1)...)
	s.tenants(t, "a")
	s.computePool(t, "  poolType: gpu\n  capacity: {total: 8}\n  quotas: [{tenant: POOL-a}]")
	s.ready(t)
	s.job(t, "a", "runs", work{gpus: 4})
	pods := s.running(t, "a", "runs", 1)
	s.remove(t, &poolv1alpha1.ComputePool{ObjectMeta: metav1.ObjectMeta{Name: s.name}})
	s.waitFor(t, "the pool says what it waits for", func(ctx context.Context) (bool, string) {
		var pool poolv1alpha1.ComputePool
		if err := s.Get(ctx, client.ObjectKey{Name: s.name}, &pool); err != nil {
			return false, err.Error()
		}
		c := meta.FindStatusCondition(pool.Status.Conditions, poolv1alpha1.ConditionReady)
		return c != nil && c.Status == metav1.ConditionFalse && strings.Contains(c.Message, s.name+"."+s.tenant("a")+" (1)"), fmt.Sprint(c)
	})
	s.job(t, "a", "late", work{gpus: 4})
	s.settled(t)
	if c := s.counts("a"); c.running != 1 || c.admitted != 1 {
		t.Errorf("while the pool waits: %+v, want the one pod that runs and no job more", c)
	}
	s.end(t, pods[0])
	s.waitFor(t, "the pool and its objects are gone", func(ctx context.Context) (bool, string) {
		err := s.Get(ctx, client.ObjectKey{Name: s.name}, &poolv1alpha1.ComputePool{})
		left := s.objectsOfPool(ctx, t)
		return client.IgnoreNotFound(err) == nil && err != nil && len(left) == 0, fmt.Sprint(left, err)
	})
	if text := s.scrape(t); strings.Contains(text, fmt.Sprintf("pool=%q", s.name)) {
		t.Errorf("the metrics still have pool %s", s.name)
	}
}
