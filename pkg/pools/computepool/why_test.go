// SPDX-License-Identifier: Apache-2.0

package computepool

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// TestRefusals: a refused job gets the right reason, with numbers of devices.
func TestRefusals(t *testing.T) {
	t.Parallel()
	limit := func(n int32) *int32 { return &n }
	for name, tc := range map[string]struct {
		change     func(*v1alpha1.ComputePoolSpec)
		nodes      []*v1.Node
		pins       Pins
		request    Request
		wantReason string
		want       string
	}{
		"alone it is more than may be": {
			request: Request{Queue: "pool.c", Devices: Amounts{nvidia: 17}}, wantReason: names.ProtectedNever,
			want: "jobs with preemptible: false of tenant c may hold 16 devices (protectedLimit in quotas, or guaranteed without it), and this one asks for 17: it can never start",
		},
		"with others it is": {
			pins: Pins{"pool.c": {nvidia: 10}}, request: Request{Queue: "pool.c", Devices: Amounts{nvidia: 7}}, wantReason: names.ProtectedAtLimit,
			want: "may hold 16 devices (protectedLimit in quotas, or guaranteed without it) and hold 10: this job's 7 wait until some of these end",
		},
		"others are guaranteed what it needs": {
			pins: Pins{"pool.a": {nvidia: 32}, "pool.b": {nvidia: 10}}, request: Request{Queue: "pool.c", Devices: Amounts{nvidia: 15}}, wantReason: names.ProtectedTakes,
			want: "the job needs 15 devices beyond what is guaranteed to tenant c, and 14 are neither guaranteed to others nor set aside",
		},
		"nodes are lost": {
			nodes: []*v1.Node{testNode("n0", "pool", 20, nvidia)}, request: Request{Queue: "pool.a", Devices: Amounts{nvidia: 1}}, wantReason: names.ProtectedTakes,
			want: "guarantees and has set aside 12 devices more than it has",
		},
		"it asks for no device of the pool": {
			request: Request{Queue: "pool.a", Devices: Amounts{"example.com/npu": 1}}, wantReason: names.ProtectedNever,
			want: "which gives out nvidia.com/gpu, amd.com/gpu: it can never start",
		},
		"a queue's": {
			change: func(s *v1alpha1.ComputePoolSpec) {
				s.Quotas, s.Queues = nil, []v1alpha1.PoolQueue{{Name: "high", GuaranteedCapacity: 8}}
			},
			request: Request{Queue: "pool.high", Devices: Amounts{nvidia: 9}}, wantReason: names.ProtectedNever,
			want: "of queue high may hold 8 devices (protectedCapacity in queues, or guaranteedCapacity without it)",
		},
		"two levels, all of a tenant's queues": {
			change: func(s *v1alpha1.ComputePoolSpec) {
				s.Quotas, s.Queues = []v1alpha1.TenantQuota{{Tenant: "a", Guaranteed: 16}}, []v1alpha1.PoolQueue{{Name: "high"}, {Name: "low"}}
			},
			pins: Pins{"pool.a.low": {nvidia: 10}}, request: Request{Queue: "pool.a.high", Devices: Amounts{nvidia: 7}}, wantReason: names.ProtectedAtLimit,
			want: "of tenant a may hold 16 devices (protectedLimit in quotas, or guaranteed without it) and hold 10",
		},
		"two levels, one of them": {
			change: func(s *v1alpha1.ComputePoolSpec) {
				s.Quotas, s.Queues = []v1alpha1.TenantQuota{{Tenant: "a", Guaranteed: 16}}, []v1alpha1.PoolQueue{{Name: "high", ProtectedCapacity: limit(4)}}
			},
			request: Request{Queue: "pool.a.high", Devices: Amounts{nvidia: 5}}, wantReason: names.ProtectedNever,
			want: "of tenant a in queue high may hold 4 devices (protectedLimit in quotas, or protectedCapacity in queues)",
		},
		"turns of devices": {
			change: func(s *v1alpha1.ComputePoolSpec) {
				s.Quotas = []v1alpha1.TenantQuota{{Tenant: "a", Guaranteed: 16}}
				s.Virtualization = &v1alpha1.Virtualization{Enabled: true, Strategy: v1alpha1.StrategyTimeSlicing, Replicas: 4}
			},
			nodes:   []*v1.Node{testNode("n0", "pool", 256, "nvidia.com/gpu.shared")},
			request: Request{Queue: "pool.a", Devices: Amounts{"nvidia.com/gpu.shared": 66}}, wantReason: names.ProtectedNever,
			want: "may hold 16 devices (protectedLimit in quotas, or guaranteed without it), and this one asks for 17",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := examplePool()
			if tc.change != nil {
				tc.change(&pool.Spec)
			}
			_, refused, _ := NewLayout(pool, nil, nil).Protect(capacityOf(pool, tc.nodes...), tc.pins, []Request{tc.request})
			if len(refused) != 1 || refused[0].Why.Reason != tc.wantReason || !strings.Contains(refused[0].Why.Message, tc.want) {
				t.Errorf("got %+v, want one refusal, %s with %q", refused, tc.wantReason, tc.want)
			}
		})
	}
}

// TestPlanTells: waiting jobs get their reason once, and again when it changes.
func TestPlanTells(t *testing.T) {
	t.Parallel()
	pool := examplePool()
	in := exampleCluster(pool)
	have := settledObjects(t, pool, in)
	have.Jobs = []*batchv1.Job{
		protectedJob("team-c", "granted", 4, names.GateProtected), protectedJob("team-c", "refused", 14, names.GateProtected),
		protectedJob("team-c", "runs", 1, ""), protectedJob("team-x", "stranger", 1, names.GateProtected),
	}
	told := func() map[string]string {
		out := map[string]string{}
		for _, w := range PlanFor(pool, in, have, false).Tell {
			out[w.Job.Name] = w.Why.Reason
			w.Job.Annotations[names.AnnotationProtection] = w.Why.String()
		}
		return out
	}
	if diff := cmp.Diff(map[string]string{"granted": names.ProtectedSoon, "refused": names.ProtectedAtLimit}, told()); diff != "" {
		t.Errorf("first (-want +got):\n%s", diff)
	}
	if got := told(); len(got) > 0 {
		t.Errorf("again: %v, want nothing", got)
	}
	have.Jobs = have.Jobs[1:2]
	pool.Spec.Quotas[2].ProtectedLimit = new(int32(13))
	if diff := cmp.Diff(map[string]string{"refused": names.ProtectedNever}, told()); diff != "" {
		t.Errorf("after the limit was lowered (-want +got):\n%s", diff)
	}
}

// TestNeverFits: a job that requests more than its share may ever hold gets that reason, whether it
// is protected or not.
func TestNeverFits(t *testing.T) {
	t.Parallel()
	limit := func(n int32) *int32 { return &n }
	sized := func(queue string, pods int32, gpus int64) *batchv1.Job {
		job := protectedJob("team-a", "j", gpus, "")
		job.Labels = map[string]string{kueue.LabelQueue: queue}
		job.Spec.Parallelism = &pods
		return job
	}
	for name, tc := range map[string]struct {
		change func(*v1alpha1.ComputePoolSpec)
		tenant string
		job    *batchv1.Job
		want   string
	}{
		"it is as large as the limit": {tenant: "a", job: sized("pool", 4, 8)},
		"it is larger":                {tenant: "a", job: sized("pool", 11, 3), want: "the job asks for 33 devices, and the limit of tenant a in ComputePool pool is 32: it can never start"},
		"a tenant without quota":      {tenant: "x", job: sized("pool", 11, 3)},
		"more than can be shared": {
			change: func(s *v1alpha1.ComputePoolSpec) { s.Quotas = []v1alpha1.TenantQuota{{Tenant: "a"}} }, tenant: "a", job: sized("pool", 57, 1),
			want: "asks for 57 devices, and what tenants can share in ComputePool pool is 56",
		},
		"more than its queue may hold": {
			change: func(s *v1alpha1.ComputePoolSpec) {
				s.Quotas, s.Queues = nil, []v1alpha1.PoolQueue{{Name: "low"}, {Name: "high", MaxCapacity: limit(4)}}
			}, tenant: "a", job: sized("pool.high", 1, 5), want: "asks for 5 devices, and the limit of queue high in ComputePool pool is 4",
		},
		"another queue has more": {
			change: func(s *v1alpha1.ComputePoolSpec) {
				s.Quotas, s.Queues = nil, []v1alpha1.PoolQueue{{Name: "low"}, {Name: "high", MaxCapacity: limit(4)}}
			}, tenant: "a", job: sized("pool.low", 1, 5),
		},
		"two levels, more than the queue may hold": {
			change: func(s *v1alpha1.ComputePoolSpec) {
				s.Queues = []v1alpha1.PoolQueue{{Name: "high"}}
				s.Hierarchy = v1alpha1.QueueFirst
				s.Queues[0].MaxCapacity = limit(8)
			},
			tenant: "a", job: sized("pool.high", 1, 9), want: "the limit of tenant a in queue high in ComputePool pool is 8",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := examplePool()
			if tc.change != nil {
				tc.change(&pool.Spec)
			}
			if got := NeverFits(pool, tc.tenant, tc.job); (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
				t.Errorf("got %q, want %q in it", got, tc.want)
			}
		})
	}
}
