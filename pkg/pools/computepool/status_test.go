// SPDX-License-Identifier: Apache-2.0

package computepool

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
)

// statusAfter returns the status of the example's pool, with all objects existing, after a
// change.
func statusAfter(t *testing.T, change func(pool *v1alpha1.ComputePool, in *Cluster, have *Objects, o *Observed)) v1alpha1.ComputePoolStatus {
	t.Helper()
	pool := examplePool()
	in := exampleCluster(pool)
	have := settledObjects(t, pool, in)
	change(pool, in, have, nil)
	o := PlanFor(pool, in, have, false).observed
	change(pool, in, have, o)
	return StatusOf(pool, o)
}

func TestConditions(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change    func(pool *v1alpha1.ComputePool, in *Cluster, have *Objects, o *Observed)
		condition string
		wantTrue  bool
		reason    string
		message   string
		phase     v1alpha1.PoolPhase
	}{
		"all is as it should be": {condition: v1alpha1.ConditionReady, wantTrue: true, reason: "QueuesActive", phase: v1alpha1.PoolReady},
		"a queue is not there yet": {
			change:    func(_ *v1alpha1.ComputePool, _ *Cluster, have *Objects, _ *Observed) { have.Quotas = have.Quotas[:3] },
			condition: v1alpha1.ConditionReady, reason: "QueueNotActive", message: "pool.c", phase: v1alpha1.PoolPending,
		},
		"Kueue does not serve a queue": {
			change: func(_ *v1alpha1.ComputePool, _ *Cluster, have *Objects, _ *Observed) {
				c := &queueIn(have, "pool.b").Status.Conditions[0]
				c.Status, c.Reason, c.Message = metav1.ConditionFalse, "FlavorNotFound", "references missing ResourceFlavor(s): pool"
			},
			condition: v1alpha1.ConditionReady, reason: "QueueNotActive", message: "missing ResourceFlavor", phase: v1alpha1.PoolPending,
		},
		"a queue that is stopped is as the spec has it": {
			change: func(pool *v1alpha1.ComputePool, _ *Cluster, have *Objects, _ *Observed) {
				pool.Spec.StopPolicy = v1alpha1.StopHold
				c := &queueIn(have, "pool.b").Status.Conditions[0]
				c.Status, c.Reason = metav1.ConditionFalse, kueue.ClusterQueueStopped
			},
			condition: v1alpha1.ConditionReady, wantTrue: true, reason: "QueuesActive", message: "stopPolicy", phase: v1alpha1.PoolReady,
		},
		"something could not be written": {
			change: func(_ *v1alpha1.ComputePool, _ *Cluster, _ *Objects, o *Observed) {
				if o != nil {
					o.Problem = errors.New("make Cohort pool: refused")
				}
			},
			condition: v1alpha1.ConditionReady, reason: "WriteFailed", message: "Cohort pool", phase: v1alpha1.PoolPending,
		},
		"an object of others has the name of one of its own": {
			change: func(_ *v1alpha1.ComputePool, _ *Cluster, _ *Objects, o *Observed) {
				if o != nil {
					o.Problem = fmt.Errorf("write: %w", &foreignError{object: "ResourceFlavor pool", label: "pool"})
				}
			},
			condition: v1alpha1.ConditionReady, reason: "NotOfThisPool", message: "ResourceFlavor pool is there without the label pool.nvtopo.dev/managed=pool", phase: v1alpha1.PoolPending,
		},
		"the pool is being deleted, and Kueue keeps what it uses": {
			change: func(pool *v1alpha1.ComputePool, _ *Cluster, have *Objects, _ *Observed) {
				pool.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
				have.Quotas, have.LocalQueues = nil, nil
				have.Flavors[0].DeletionTimestamp, have.Flavors[0].Finalizers = pool.DeletionTimestamp, []string{"kueue.x-k8s.io/resource-in-use"}
			},
			condition: v1alpha1.ConditionReady, reason: "KueueHoldsObjects", message: "ResourceFlavor pool (kept by kueue.x-k8s.io/resource-in-use)", phase: v1alpha1.PoolPending,
		},
		"the pool is being deleted": {
			change: func(pool *v1alpha1.ComputePool, _ *Cluster, have *Objects, _ *Observed) {
				pool.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
				queueIn(have, "pool.a").Status.ReservingWorkloads = 2
			},
			condition: v1alpha1.ConditionReady, reason: "JobsHoldQuota", message: "pool.a (2)", phase: v1alpha1.PoolPending,
		},
		"a node is missing": {
			change:    func(_ *v1alpha1.ComputePool, in *Cluster, _ *Objects, _ *Observed) { in.Nodes = in.Nodes[:7] },
			condition: v1alpha1.ConditionCapacityMismatch, wantTrue: true, reason: "OtherNumberOfDevices", message: "64, and the nodes have 56", phase: v1alpha1.PoolReady,
		},
		"what is guaranteed is not there": {
			change:    func(_ *v1alpha1.ComputePool, in *Cluster, _ *Objects, _ *Observed) { in.Nodes = in.Nodes[:3] },
			condition: v1alpha1.ConditionGuaranteesOvercommitted, wantTrue: true, reason: "TooFewDevices", message: "8 devices more", phase: v1alpha1.PoolDegraded,
		},
		"the reserve is small": {
			change:    func(pool *v1alpha1.ComputePool, _ *Cluster, _ *Objects, _ *Observed) { pool.Spec.Capacity.Reserved = 6 },
			condition: v1alpha1.ConditionReserveAdvice, wantTrue: true, reason: "ReserveTooSmall", message: "6 of 64", phase: v1alpha1.PoolReady,
		},
		"the reserve is large": {
			change: func(pool *v1alpha1.ComputePool, _ *Cluster, _ *Objects, _ *Observed) {
				pool.Spec.Capacity.Reserved = 13
			},
			condition: v1alpha1.ConditionReserveAdvice, wantTrue: true, reason: "ReserveTooLarge", phase: v1alpha1.PoolReady,
		},
		"somebody else's pods": {
			change: func(_ *v1alpha1.ComputePool, in *Cluster, _ *Objects, _ *Observed) {
				in.Pods = nil
				for i := range 7 {
					in.Pods = append(in.Pods, testPod("kube-system", fmt.Sprint("p", i), "n0", 1, nvidia))
				}
			},
			condition: v1alpha1.ConditionForeignUse, wantTrue: true, reason: "ForeignPods",
			message: "7 devices: kube-system/p0, kube-system/p1, kube-system/p2, kube-system/p3, kube-system/p4 and 2 more", phase: v1alpha1.PoolReady,
		},
		"another pool has a node": {
			change: func(_ *v1alpha1.ComputePool, in *Cluster, _ *Objects, _ *Observed) {
				other := examplePool()
				other.Name, other.Spec.NodeSelector = "another", map[string]string{"rack": "1"}
				in.Pools = append(in.Pools[:1:1], other)
				in.Nodes[3].Labels["rack"] = "1"
			},
			condition: v1alpha1.ConditionNodesShared, wantTrue: true, reason: "NodesOfOtherPools", message: "node n3 (pool another)", phase: v1alpha1.PoolReady,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			change := tc.change
			if change == nil {
				change = func(*v1alpha1.ComputePool, *Cluster, *Objects, *Observed) {}
			}
			s := statusAfter(t, change)
			c := meta.FindStatusCondition(s.Conditions, tc.condition)
			if c == nil || (c.Status == metav1.ConditionTrue) != tc.wantTrue || c.Reason != tc.reason || !strings.Contains(c.Message, tc.message) {
				t.Errorf("condition %s: %+v, want true %t, reason %s, message with %q", tc.condition, c, tc.wantTrue, tc.reason, tc.message)
			}
			if s.Phase != tc.phase || s.ObservedGeneration != 3 {
				t.Errorf("phase %s of generation %d, want %s of 3", s.Phase, s.ObservedGeneration, tc.phase)
			}
		})
	}
}

// TestForeignConditions: conditions of other controllers stay, and are not applied; unchanged
// ones keep their time.
func TestForeignConditions(t *testing.T) {
	t.Parallel()
	since := metav1.NewTime(time.Unix(100, 0))
	s := statusAfter(t, func(pool *v1alpha1.ComputePool, _ *Cluster, _ *Objects, _ *Observed) {
		pool.Status.Conditions = []metav1.Condition{
			{Type: v1alpha1.ConditionVirtualizationApplied, Status: metav1.ConditionTrue, Reason: "Applied", LastTransitionTime: since},
			{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Before", LastTransitionTime: since},
		}
	})
	if c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionVirtualizationApplied); c == nil || c.Reason != "Applied" {
		t.Errorf("another's condition is %+v", c)
	}
	if c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReady); c.LastTransitionTime != since || c.Reason != reasonQueuesActive {
		t.Errorf("Ready is %+v, want the time of before and the reason of now", c)
	}
	own := ownConditions(slices.Clone(s.Conditions))
	if len(own) != len(s.Conditions)-1 || meta.FindStatusCondition(own, v1alpha1.ConditionVirtualizationApplied) != nil {
		t.Errorf("own conditions: %+v", own)
	}
}

func TestShares(t *testing.T) {
	t.Parallel()
	use := func(cq *kueue.ClusterQueue, n int64, pending int32) {
		cq.Status.FlavorsReservation = []kueue.FlavorUsage{{Name: "pool", Resources: []kueue.ResourceUsage{
			{Name: nvidia, Total: *resource.NewQuantity(n, resource.DecimalSI)},
		}}}
		cq.Status.PendingWorkloads = pending
	}
	s := statusAfter(t, func(_ *v1alpha1.ComputePool, _ *Cluster, have *Objects, _ *Observed) {
		use(queueIn(have, "pool.a"), 20, 0)
		use(queueIn(have, "pool.b"), 8, 3)
		have.Jobs = nil
		have.Jobs = append(have.Jobs, protectedJob("team-a", "safe", 18, ""), protectedJob("team-c", "huge", 64, "pool.nvtopo.dev/protected"))
	})
	want := []v1alpha1.PoolShare{
		{Tenant: "a", Guaranteed: 16, Limit: 32, Pinned: 18, Used: 20, Borrowed: 2},
		{Tenant: "b", Guaranteed: 8, Limit: 24, Used: 8, Pending: 3},
		{Tenant: "c", Limit: 16, Pending: 1},
	}
	if diff := cmp.Diff(want, s.Shares); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Where a pool has both lists, a tenant's share is the sum of its parts.
func TestTwoLevelShares(t *testing.T) {
	t.Parallel()
	pool := examplePool()
	pool.Spec.Quotas = pool.Spec.Quotas[:1]
	pool.Spec.Queues = []v1alpha1.PoolQueue{{Name: "high", GuaranteedCapacity: 8}, {Name: "low"}}
	in := exampleCluster(pool)
	have := settledObjects(t, pool, in)
	for name, n := range map[string]int64{"pool.a.high": 9, "pool.a.low": 10} {
		queueIn(have, name).Status = kueue.ClusterQueueStatus{PendingWorkloads: 1, FlavorsReservation: []kueue.FlavorUsage{
			{Resources: []kueue.ResourceUsage{{Name: nvidia, Total: *resource.NewQuantity(n, resource.DecimalSI)}}},
		}}
	}
	got := StatusOf(pool, PlanFor(pool, in, have, false).observed).Shares
	want := []v1alpha1.PoolShare{
		{Tenant: "a", Guaranteed: 16, Limit: 32, Used: 19, Borrowed: 3, Pending: 2},
		{Tenant: "a", Queue: "high", Guaranteed: 8, Limit: 32, Used: 9, Borrowed: 1, Pending: 1},
		{Tenant: "a", Queue: "low", Limit: 32, Used: 10, Borrowed: 10, Pending: 1},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestSharesCut: a pool with more shares than its status admits reports how many are left out.
func TestSharesCut(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		tenants, wantShares int
		wantStatus          metav1.ConditionStatus
		wantMessage         string
	}{
		"none":                   {wantStatus: metav1.ConditionFalse},
		"as many as there may":   {tenants: 1024, wantShares: 1024, wantStatus: metav1.ConditionFalse},
		"one more than that":     {tenants: 1025, wantShares: 1024, wantStatus: metav1.ConditionTrue, wantMessage: "the first 1024 of 1025 shares"},
		"many times more":        {tenants: 5000, wantShares: 1024, wantStatus: metav1.ConditionTrue, wantMessage: "the first 1024 of 5000 shares"},
		"the next step is there": {tenants: 1025, wantShares: 1024, wantStatus: metav1.ConditionTrue, wantMessage: "kubectl get clusterqueues -l pool.nvtopo.dev/managed=pool"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := examplePool()
			pool.Spec.Quotas, pool.Spec.DefaultQuota = nil, &v1alpha1.DefaultQuota{}
			var tenants []string
			for i := range tc.tenants {
				tenants = append(tenants, fmt.Sprintf("t%04d", i))
			}
			s := StatusOf(pool, &Observed{Capacity: capacityOf(pool), Layout: NewLayout(pool, tenants, nil)})
			if len(s.Shares) != tc.wantShares {
				t.Errorf("%d shares, want %d", len(s.Shares), tc.wantShares)
			}
			c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionSharesCut)
			if c == nil || c.Status != tc.wantStatus || !strings.Contains(c.Message, tc.wantMessage) {
				t.Errorf("condition %+v, want %s with %q", c, tc.wantStatus, tc.wantMessage)
			}
		})
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	pool := examplePool()
	in := exampleCluster(pool)
	in.Pods = []*v1.Pod{testPod("team-a", "x", "n0", 3, nvidia), testPod("kube-system", "y", "n1", 1, nvidia)}
	now := time.Unix(10_000, 0)
	waiting := func(name string, since int64) *kueue.Workload {
		return &kueue.Workload{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team-b", Name: name, CreationTimestamp: metav1.Unix(since, 0)},
			Spec:       kueue.WorkloadSpec{QueueName: "pool"},
		}
	}
	no := false
	inactive, evicted, admitted := waiting("inactive", 1), waiting("evicted", 2), waiting("admitted", 3)
	inactive.Spec.Active = &no
	evicted.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadEvicted, Status: metav1.ConditionTrue, LastTransitionTime: metav1.Unix(9_990, 0)}}
	admitted.Status.Admission = &kueue.Admission{ClusterQueue: "pool.b"}
	in.Workloads = []*kueue.Workload{inactive, evicted, admitted, waiting("old", 9_940), waiting("new", 9_995)}

	have := asKueueHasThem(NewLayout(pool, nil, nil).Render(capacityOf(pool), in.Open, nil, false))
	p := PlanFor(pool, in, have, false)
	p.metrics.status = StatusOf(pool, p.observed)
	c := newCollector(clocktesting.NewFakePassiveClock(now))
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	c.set("pool", p.metrics)
	want := `
# HELP compute_pool_allocated Devices of a pool that live pods hold.
# TYPE compute_pool_allocated gauge
compute_pool_allocated{pool="pool"} 4
# HELP compute_pool_available Devices of a pool that jobs could get now: free on nodes that take pods, and not reserved.
# TYPE compute_pool_available gauge
compute_pool_available{pool="pool"} 52
# HELP compute_pool_tenant_guaranteed What a tenant gets of a pool whenever it asks.
# TYPE compute_pool_tenant_guaranteed gauge
compute_pool_tenant_guaranteed{pool="pool",tenant_id="a"} 16
compute_pool_tenant_guaranteed{pool="pool",tenant_id="b"} 8
compute_pool_tenant_guaranteed{pool="pool",tenant_id="c"} 0
# HELP compute_pool_usage Devices that a tenant's live pods hold on the nodes of a pool.
# TYPE compute_pool_usage gauge
compute_pool_usage{pool="pool",resource_type="nvidia.com/gpu",tenant_id="a"} 3
# HELP compute_queue_oldest_pending_seconds For how long the oldest job of a ClusterQueue has waited for quota; 0 when none waits.
# TYPE compute_queue_oldest_pending_seconds gauge
compute_queue_oldest_pending_seconds{pool="pool",queue="pool.a"} 0
compute_queue_oldest_pending_seconds{pool="pool",queue="pool.b"} 60
compute_queue_oldest_pending_seconds{pool="pool",queue="pool.c"} 0
`
	names := []string{"compute_pool_allocated", "compute_pool_available", "compute_pool_tenant_guaranteed", "compute_pool_usage", "compute_queue_oldest_pending_seconds"}
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
	c.forget("pool")
	if n, err := testutil.GatherAndCount(registry); err != nil || n != 0 {
		t.Errorf("%d series of a pool that is gone, %v", n, err)
	}
}
