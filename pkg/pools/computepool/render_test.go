// SPDX-License-Identifier: Apache-2.0

package computepool

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
)

// capacityOf returns the capacity of a pool, by default with the example's nodes.
func capacityOf(pool *v1alpha1.ComputePool, nodes ...*v1.Node) *Capacity {
	if nodes == nil {
		nodes = exampleNodes()
	}
	return CapacityOf(pool, MembersOf(pool, []*v1alpha1.ComputePool{pool}, nodes), nil, nil, nil)
}

// lines summarizes the objects' quotas of one resource.
func lines(r *Rendered, of resourceName) []string {
	var out []string
	for _, o := range r.Quotas {
		q := quotaIn(o, of)
		line := fmt.Sprintf("%s: %d", keyOf(o), q.NominalQuota.Value())
		if q.BorrowingLimit != nil {
			line += fmt.Sprintf(" +%d", q.BorrowingLimit.Value())
		}
		if q.LendingLimit != nil {
			line += fmt.Sprintf(" lends %d", q.LendingLimit.Value())
		}
		switch o := o.(type) {
		case *kueue.Cohort:
			if o.Spec.ParentName != "" {
				line += fmt.Sprintf(" of %s, weight %s", o.Spec.ParentName, o.Spec.FairSharing.Weight)
			}
		case *kueue.ClusterQueue:
			line += fmt.Sprintf(" of %s, weight %s, %s", o.Spec.CohortName, o.Spec.FairSharing.Weight, o.Spec.QueueingStrategy)
			if o.Spec.Preemption.ReclaimWithinCohort == kueue.PreemptNever && o.Spec.Preemption.WithinClusterQueue == kueue.PreemptNever {
				line += ", never preempts"
			}
			if o.Spec.StopPolicy != "None" {
				line += ", " + o.Spec.StopPolicy
			}
		}
		out = append(out, line)
	}
	for _, q := range r.LocalQueues {
		out = append(out, fmt.Sprintf("%s: %s", keyOf(q), q.Spec.ClusterQueue))
	}
	return out
}

func TestRender(t *testing.T) {
	t.Parallel()
	no := false
	limit := func(n int32) *int32 { return &n }
	// configMap are the queues of the requirement's ConfigMap.
	configMap := []v1alpha1.PoolQueue{
		{Name: "high", Priority: 100, MaxCapacity: limit(48), GuaranteedCapacity: 32, Weight: 3, Policy: v1alpha1.QueueFairShare, Reclaimable: &no},
		{Name: "normal", Priority: 50, MaxCapacity: limit(64), GuaranteedCapacity: 16, Weight: 2, Policy: v1alpha1.QueueFIFO, Tenants: []string{"a"}},
		{Name: "low", Priority: 10, MaxCapacity: limit(64), Weight: 2, Policy: v1alpha1.QueueCapacity, PreemptionPolicy: v1alpha1.PreemptNever, StopPolicy: v1alpha1.StopHold},
	}
	for name, tc := range map[string]struct {
		change     func(*v1alpha1.ComputePool)
		nodes      []*v1.Node
		namespaces map[string]string
		existing   []Existing
		pins       Pins
		want       []string
	}{
		"quotas alone": {
			namespaces: map[string]string{"team-a": "a", "team-a-dev": "a", "team-x": "x"},
			want: []string{
				"Cohort//pool: 32",
				"ClusterQueue//pool.a: 16 +16 of pool, weight 1, BestEffortFIFO",
				"ClusterQueue//pool.b: 8 +16 of pool, weight 1, BestEffortFIFO",
				"ClusterQueue//pool.c: 0 +16 of pool, weight 1, BestEffortFIFO",
				"LocalQueue/team-a/pool: pool.a", "LocalQueue/team-a-dev/pool: pool.a",
			},
		},
		"a default for tenants that are not listed": {
			change:     func(p *v1alpha1.ComputePool) { p.Spec.DefaultQuota = &v1alpha1.DefaultQuota{Weight: 2} },
			namespaces: map[string]string{"team-x": "x", "team-dot": "x.y"},
			want: []string{
				"Cohort//pool: 32",
				"ClusterQueue//pool.a: 16 +16 of pool, weight 1, BestEffortFIFO",
				"ClusterQueue//pool.b: 8 +16 of pool, weight 1, BestEffortFIFO",
				"ClusterQueue//pool.c: 0 +16 of pool, weight 1, BestEffortFIFO",
				"ClusterQueue//pool.x: 0 +64 of pool, weight 2, BestEffortFIFO",
				"LocalQueue/team-x/pool: pool.x",
			},
		},
		"weights with decimals": {
			change: func(p *v1alpha1.ComputePool) {
				p.Spec.Quotas[0].Weight, p.Spec.Quotas[1].Weight, p.Spec.Quotas[2].Weight = 1.5, 0.25, 0
			},
			want: []string{
				"Cohort//pool: 32",
				"ClusterQueue//pool.a: 16 +16 of pool, weight 1500m, BestEffortFIFO",
				"ClusterQueue//pool.b: 8 +16 of pool, weight 250m, BestEffortFIFO",
				"ClusterQueue//pool.c: 0 +16 of pool, weight 1, BestEffortFIFO",
			},
		},
		"pinned devices above the guarantee, and a limit that was lowered below them": {
			change: func(p *v1alpha1.ComputePool) { p.Spec.Quotas[2].Limit = limit(4) },
			pins:   Pins{"pool.a": {nvidia: 24}, "pool.c": {nvidia: 8}},
			want: []string{
				"Cohort//pool: 16",
				"ClusterQueue//pool.a: 24 +8 of pool, weight 1, BestEffortFIFO",
				"ClusterQueue//pool.b: 8 +16 of pool, weight 1, BestEffortFIFO",
				"ClusterQueue//pool.c: 8 +0 of pool, weight 1, BestEffortFIFO",
			},
		},
		"without fair sharing all weights are equal": {
			change: func(p *v1alpha1.ComputePool) {
				p.Spec.Quotas = []v1alpha1.TenantQuota{{Tenant: "a", Weight: 3}}
				p.Spec.FairShare = &v1alpha1.FairShare{Enabled: &no}
			},
			want: []string{"Cohort//pool: 56", "ClusterQueue//pool.a: 0 +64 of pool, weight 1, BestEffortFIFO"},
		},
		"queues alone": {
			change: func(p *v1alpha1.ComputePool) {
				p.Spec.Quotas, p.Spec.Queues = nil, configMap
				p.Spec.StopPolicy = v1alpha1.StopNone
			},
			namespaces: map[string]string{"team-a": "a", "team-x": "x"},
			want: []string{
				"Cohort//pool: 8",
				"ClusterQueue//pool.high: 32 +16 lends 0 of pool, weight 3, BestEffortFIFO",
				"ClusterQueue//pool.normal: 16 +48 of pool, weight 1, StrictFIFO",
				"ClusterQueue//pool.low: 0 +64 of pool, weight 1, BestEffortFIFO, never preempts, Hold",
				"LocalQueue/team-a/pool.high: pool.high", "LocalQueue/team-a/pool.low: pool.low", "LocalQueue/team-a/pool.normal: pool.normal",
				"LocalQueue/team-x/pool.high: pool.high", "LocalQueue/team-x/pool.low: pool.low",
			},
		},
		"the pool's stop is the stricter one": {
			change: func(p *v1alpha1.ComputePool) {
				p.Spec.Quotas, p.Spec.Queues, p.Spec.StopPolicy = nil, configMap[2:], v1alpha1.StopHoldAndDrain
			},
			want: []string{"Cohort//pool: 56", "ClusterQueue//pool.low: 0 +64 of pool, weight 1, BestEffortFIFO, never preempts, HoldAndDrain"},
		},
		"both lists, tenants first": {
			change:     func(p *v1alpha1.ComputePool) { p.Spec.Quotas, p.Spec.Queues = p.Spec.Quotas[:2], configMap },
			namespaces: map[string]string{"team-a": "a", "team-b": "b"},
			// Of 16 guaranteed, high's 32 and normal's 16 are two thirds and one.
			want: []string{
				"Cohort//pool: 32",
				"Cohort//pool.a: 1 +16 of pool, weight 1",
				"Cohort//pool.b: 0 +16 of pool, weight 1",
				"ClusterQueue//pool.a.high: 10 +22 lends 0 of pool.a, weight 3, BestEffortFIFO",
				"ClusterQueue//pool.a.normal: 5 +27 of pool.a, weight 1, StrictFIFO",
				"ClusterQueue//pool.a.low: 0 +32 of pool.a, weight 1, BestEffortFIFO, never preempts, Hold",
				"ClusterQueue//pool.b.high: 8 +16 lends 0 of pool.b, weight 3, BestEffortFIFO",
				"ClusterQueue//pool.b.low: 0 +24 of pool.b, weight 1, BestEffortFIFO, never preempts, Hold",
				"LocalQueue/team-a/pool.high: pool.a.high", "LocalQueue/team-a/pool.low: pool.a.low", "LocalQueue/team-a/pool.normal: pool.a.normal",
				"LocalQueue/team-b/pool.high: pool.b.high", "LocalQueue/team-b/pool.low: pool.b.low",
			},
		},
		"both lists, queues first, and one tenant's job is pinned": {
			change: func(p *v1alpha1.ComputePool) {
				p.Spec.Quotas, p.Spec.Queues, p.Spec.Hierarchy = p.Spec.Quotas[:2], configMap[:2], v1alpha1.QueueFirst
			},
			pins: Pins{"pool.b.high": {nvidia: 20}},
			// a's 16 and b's 8 are less than high's 32, of which 16 + 20 are held for sure then.
			want: []string{
				"Cohort//pool: 4",
				"Cohort//pool.high: 0 +12 lends 0 of pool, weight 3",
				"Cohort//pool.normal: 0 +48 of pool, weight 1",
				"ClusterQueue//pool.a.high: 16 +16 of pool.high, weight 1, BestEffortFIFO",
				"ClusterQueue//pool.b.high: 20 +4 of pool.high, weight 1, BestEffortFIFO",
				"ClusterQueue//pool.a.normal: 16 +16 of pool.normal, weight 1, StrictFIFO",
			},
		},
		"a queue that the spec has no longer lets nobody in, and keeps what is pinned": {
			change:     func(p *v1alpha1.ComputePool) { p.Spec.Quotas = p.Spec.Quotas[:1] },
			namespaces: map[string]string{"team-a": "a", "team-b": "b"},
			existing:   []Existing{{Name: "pool.a", Tenant: "a"}, {Name: "pool.b", Tenant: "b"}},
			pins:       Pins{"pool.b": {nvidia: 4}},
			want: []string{
				"Cohort//pool: 36",
				"ClusterQueue//pool.a: 16 +16 of pool, weight 1, BestEffortFIFO",
				"ClusterQueue//pool.b: 4 +0 of pool, weight 1, BestEffortFIFO, Hold",
				"LocalQueue/team-a/pool: pool.a",
			},
		},
		"a pool that is being deleted lets nobody in": {
			change: func(p *v1alpha1.ComputePool) {
				p.Spec.Quotas, p.DeletionTimestamp = p.Spec.Quotas[:1], &metav1.Time{}
			},
			want: []string{"Cohort//pool: 40", "ClusterQueue//pool.a: 16 +16 of pool, weight 1, BestEffortFIFO, Hold"},
		},
		"fewer devices than are guaranteed": {
			nodes: []*v1.Node{testNode("n0", "pool", 20, nvidia)},
			want: []string{
				"Cohort//pool: 0",
				"ClusterQueue//pool.a: 16 +16 of pool, weight 1, BestEffortFIFO",
				"ClusterQueue//pool.b: 8 +16 of pool, weight 1, BestEffortFIFO",
				"ClusterQueue//pool.c: 0 +16 of pool, weight 1, BestEffortFIFO",
			},
		},
		"parts of devices, in thousandths": {
			change: func(p *v1alpha1.ComputePool) {
				p.Spec.Quotas = p.Spec.Quotas[:1]
				p.Spec.Virtualization = &v1alpha1.Virtualization{Enabled: true, Strategy: v1alpha1.StrategyTimeSlicing, Replicas: 4}
			},
			nodes: []*v1.Node{testNode("n0", "pool", 256, "nvidia.com/gpu.shared")},
			want:  []string{"Cohort//pool: 160", "ClusterQueue//pool.a: 64 +64 of pool, weight 1, BestEffortFIFO"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := examplePool()
			if tc.change != nil {
				tc.change(pool)
			}
			c := capacityOf(pool, tc.nodes...)
			l := NewLayout(pool, tenantsOf(tc.namespaces), tc.existing)
			got := lines(l.Render(c, tc.namespaces, tc.pins, false), c.Devices[0].resource())
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestQueuePolicies: each policy of queues is distinct in Kueue.
func TestQueuePolicies(t *testing.T) {
	t.Parallel()
	tests := map[v1alpha1.QueuePolicy]struct {
		wantStrategy              string
		wantWeight                string
		wantWeightWithoutSharing  string
		wantWeightWithNoGuarantee string
	}{
		v1alpha1.QueueFIFO:      {kueue.StrictFIFO, "1", "1", "1"},
		v1alpha1.QueuePriority:  {kueue.BestEffortFIFO, "1", "1", "1"},
		v1alpha1.QueueFairShare: {kueue.BestEffortFIFO, "5", "1", "5"},
		v1alpha1.QueueCapacity:  {kueue.BestEffortFIFO, "24", "1", "1"},
	}
	clusterQueue := func(change func(*v1alpha1.ComputePool)) *kueue.ClusterQueue {
		pool := examplePool()
		pool.Spec.Quotas = nil
		change(pool)
		for _, o := range NewLayout(pool, nil, nil).Render(capacityOf(pool), nil, nil, false).Quotas {
			if cq, ok := o.(*kueue.ClusterQueue); ok {
				return cq
			}
		}
		return nil
	}
	seen := map[string]v1alpha1.QueuePolicy{}
	for policy, tc := range tests {
		queues := []v1alpha1.PoolQueue{{Name: "q", Policy: policy, GuaranteedCapacity: 24, Weight: 5}}
		got := clusterQueue(func(p *v1alpha1.ComputePool) { p.Spec.Queues = queues })
		unshared := clusterQueue(func(p *v1alpha1.ComputePool) {
			p.Spec.Queues, p.Spec.FairShare = queues, &v1alpha1.FairShare{Enabled: new(false)}
		})
		none := clusterQueue(func(p *v1alpha1.ComputePool) {
			p.Spec.Queues = []v1alpha1.PoolQueue{{Name: "q", Policy: policy, Weight: 5}}
		})
		key := got.Spec.QueueingStrategy + " " + got.Spec.FairSharing.Weight.String()
		if other, ok := seen[key]; ok {
			t.Errorf("policies %s and %s are the same: %s", policy, other, key)
		}
		seen[key] = policy
		weights := []string{got.Spec.FairSharing.Weight.String(), unshared.Spec.FairSharing.Weight.String(), none.Spec.FairSharing.Weight.String()}
		want := []string{tc.wantWeight, tc.wantWeightWithoutSharing, tc.wantWeightWithNoGuarantee}
		if diff := cmp.Diff(want, weights); diff != "" || got.Spec.QueueingStrategy != tc.wantStrategy {
			t.Errorf("%s is %s, want %s; weights with a guarantee of 24, without fair sharing, without a guarantee (-want +got):\n%s",
				policy, got.Spec.QueueingStrategy, tc.wantStrategy, diff)
		}
	}
}

// TestRenderTwoResources: a pool of two resources is divided in proportion to its devices: here
// three to one.
func TestRenderTwoResources(t *testing.T) {
	t.Parallel()
	pool := examplePool()
	pool.Spec.Quotas = pool.Spec.Quotas[:2]
	var nodes []*v1.Node
	for i := range 8 {
		nodes = append(nodes, testNode(fmt.Sprint("n", i), "pool", 8, []v1.ResourceName{nvidia, nvidia, nvidia, amd}[i%4]))
	}
	got := NewLayout(pool, nil, nil).Render(capacityOf(pool, nodes...), nil, nil, false)
	for of, want := range map[resourceName][]string{
		nvidia: {"Cohort//pool: 24", "ClusterQueue//pool.a: 12 +12 of pool, weight 1, BestEffortFIFO", "ClusterQueue//pool.b: 6 +12 of pool, weight 1, BestEffortFIFO"},
		amd:    {"Cohort//pool: 8", "ClusterQueue//pool.a: 4 +4 of pool, weight 1, BestEffortFIFO", "ClusterQueue//pool.b: 2 +4 of pool, weight 1, BestEffortFIFO"},
	} {
		if diff := cmp.Diff(want, lines(got, of)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", of, diff)
		}
	}
}

// TestRenderCommon checks the parts common to all pools: node labels, namespace selectors, the
// check.
func TestRenderCommon(t *testing.T) {
	t.Parallel()
	pool := examplePool()
	l := NewLayout(pool, nil, nil)
	with, without := l.Render(capacityOf(pool), nil, nil, true), l.Render(capacityOf(pool), nil, nil, false)
	if diff := cmp.Diff(map[string]string{v1alpha1.LabelPool: "pool"}, with.Flavor.Spec.NodeLabels); diff != "" {
		t.Errorf("node labels (-want +got):\n%s", diff)
	}
	i := slices.IndexFunc(with.Quotas, func(o client.Object) bool { return o.GetName() == "pool.a" })
	a, _ := with.Quotas[i].(*kueue.ClusterQueue)
	want := kueue.ClusterQueueSpec{
		CohortName: "pool", NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{v1alpha1.LabelTenant: "a"}},
		QueueingStrategy: kueue.BestEffortFIFO, StopPolicy: "None", FairSharing: &kueue.FairSharing{Weight: devices(1)},
		Preemption:     &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptLowerPriority, ReclaimWithinCohort: kueue.PreemptAny},
		ResourceGroups: a.Spec.ResourceGroups,
		AdmissionChecksStrategy: &kueue.AdmissionChecksStrategy{
			AdmissionChecks: []kueue.AdmissionCheckRule{{Name: "nvtopo-placement"}},
		},
	}
	if diff := cmp.Diff(want, a.Spec); diff != "" {
		t.Errorf("with the check (-want +got):\n%s", diff)
	}
	if a, _ := without.Quotas[i].(*kueue.ClusterQueue); a.Spec.AdmissionChecksStrategy != nil {
		t.Errorf("without the check: %+v", a.Spec.AdmissionChecksStrategy)
	}
	if diff := cmp.Diff([]resourceName{nvidia, amd}, a.Spec.ResourceGroups[0].CoveredResources); diff != "" {
		t.Errorf("covered resources (-want +got):\n%s", diff)
	}
}
