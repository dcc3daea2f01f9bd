// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	topologyv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// TestRecorderLimits checks that a recorder reports excesses of limits, and nothing else.
func TestRecorderLimits(t *testing.T) {
	pod := func(namespace, uid string, gpus int64, change func(*v1.Pod)) *v1.Pod {
		p := gpuPod(namespace, uid, gpus).Node("s1-n0").Obj()
		if change != nil {
			change(p)
		}
		return p
	}
	workload := func(namespace, uid string, gpus, reclaimable int64, change func(*kueue.Workload)) *kueue.Workload {
		pods := int32(4)
		w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Name: uid, Namespace: namespace, UID: types.UID(uid)}}
		w.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionTrue}}
		w.Status.Admission = &kueue.Admission{PodSetAssignments: []kueue.PodSetAssignment{{
			Name: "main", Count: &pods,
			ResourceUsage: v1.ResourceList{topologyv1alpha1.DefaultResource: *resource.NewQuantity(gpus, resource.DecimalSI)},
		}}}
		w.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: "main", Count: int32(reclaimable)}}
		if change != nil {
			change(w)
		}
		return w
	}
	evicted := func(w *kueue.Workload) {
		w.Status.Conditions = append(w.Status.Conditions, metav1.Condition{Type: kueue.WorkloadEvicted, Status: metav1.ConditionTrue})
	}
	// ofJob also sets a version, as the API server does.
	ofJob := func(job types.UID, version string) func(*v1.Pod) {
		return func(p *v1.Pod) {
			p.ResourceVersion = version
			p.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", UID: job, Controller: new(true)}}
		}
	}
	deleted := func(namespace string, uid types.UID, version string) *batchv1.Job {
		return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, UID: uid, ResourceVersion: version, DeletionTimestamp: &metav1.Time{}}}
	}
	ended := func(w *kueue.Workload) {
		w.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadFinished, Status: metav1.ConditionTrue}}
	}
	queue := func(name string, nominal, borrowing int64) *kueue.ClusterQueue {
		q := kueue.ResourceQuota{Name: topologyv1alpha1.DefaultResource, NominalQuota: *resource.NewQuantity(nominal, resource.DecimalSI)}
		if borrowing >= 0 {
			q.BorrowingLimit = resource.NewQuantity(borrowing, resource.DecimalSI)
		}
		return &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kueue.ClusterQueueSpec{
			ResourceGroups: []kueue.ResourceGroup{{Flavors: []kueue.FlavorQuotas{{Resources: []kueue.ResourceQuota{q}}}}},
		}}
	}
	noQuota := func(w *kueue.Workload) { w.Status.Conditions, w.Status.Admission = nil, nil }
	leaving := func(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{} }
	tests := map[string]struct {
		events []any
		want   string // part of the report; no report if empty
	}{
		"a tenant at its limit":                          {[]any{pod("s1-a", "1", 8, nil), pod("s1-a", "2", 8, nil)}, ""},
		"a tenant above it":                              {[]any{pod("s1-a", "1", 8, nil), pod("s1-a", "2", 8, nil), pod("s1-a", "3", 1, nil)}, "bound pods of s1-a: 17, limit 16"},
		"a pod that is about to go":                      {[]any{pod("s1-a", "1", 8, leaving), pod("s1-a", "2", 8, nil), pod("s1-a", "3", 8, nil)}, ""},
		"a pod that has ended":                           {[]any{pod("s1-a", "1", 16, func(p *v1.Pod) { p.Status.Phase = v1.PodSucceeded }), pod("s1-a", "2", 16, nil)}, ""},
		"a pod without a node":                           {[]any{pod("s1-a", "1", 17, func(p *v1.Pod) { p.Spec.NodeName = "" })}, ""},
		"a pod of another scenario":                      {[]any{pod("s11-a", "1", 17, nil)}, ""},
		"a pod that is of no tenant":                     {[]any{pod("s1-free", "1", 17, nil)}, ""},
		"a pod whose Job was deleted before":             {[]any{pod("s1-a", "1", 8, ofJob("x", "5")), deleted("s1-a", "x", "9"), pod("s1-a", "2", 16, ofJob("y", "12"))}, ""},
		"a pod whose Job was deleted before, heard late": {[]any{pod("s1-a", "1", 8, ofJob("x", "5")), pod("s1-a", "2", 16, ofJob("y", "12")), deleted("s1-a", "x", "9")}, ""},
		"a pod whose Job was deleted afterwards":         {[]any{pod("s1-a", "1", 8, ofJob("x", "5")), pod("s1-a", "2", 16, ofJob("y", "12")), deleted("s1-a", "x", "13")}, "bound pods of s1-a: 24, limit 16"},
		"above it, after ten times of a deleted Job": {slices.Concat(
			[]any{pod("s1-a", "1", 8, ofJob("x", "5")), pod("s1-a", "2", 16, ofJob("y", "10"))},
			slices.Repeat([]any{pod("s1-a", "2", 16, ofJob("y", "12"))}, 10),
			[]any{deleted("s1-a", "x", "9"), pod("s1-a", "3", 1, ofJob("z", "20"))}), "bound pods of s1-a: 17, limit 16"},
		"two pods, and only the Job of one was deleted":     {[]any{pod("s1-a", "1", 8, ofJob("x", "5")), pod("s1-a", "2", 8, ofJob("y", "6")), deleted("s1-a", "x", "9"), pod("s1-a", "3", 9, ofJob("z", "12"))}, "bound pods of s1-a: 17, limit 16"},
		"pods of both above the pool, one of a deleted Job": {[]any{pod("s1-a", "1", 16, ofJob("x", "5")), pod("s1-b", "2", 16, ofJob("y", "12")), deleted("s1-a", "x", "9")}, ""},
		"both tenants above what the pool is":               {[]any{pod("s1-a", "1", 16, nil), pod("s1-b", "2", 9, nil)}, "bound pods of all tenants: map[s1-a:16 s1-b:9], the pool has 24"},
		"quota above the limit":                             {[]any{workload("s1-a", "1", 16, 0, nil), workload("s1-a", "2", 4, 0, nil)}, "reserved quota of s1-a: 20, limit 16"},
		"quota of pods that have succeeded":                 {[]any{workload("s1-a", "1", 16, 1, nil), workload("s1-a", "2", 4, 0, nil)}, ""},
		"quota of both above the pool":                      {[]any{workload("s1-a", "1", 16, 0, nil), workload("s1-b", "2", 12, 0, nil)}, "reserved quota of all tenants: map[s1-a:16 s1-b:12], the pool has 24"},
		"quota above the pool until an eviction ends":       {[]any{workload("s1-a", "1", 16, 0, evicted), workload("s1-b", "2", 12, 0, nil)}, ""},
		"quota above the limit until an eviction ends":      {[]any{workload("s1-a", "1", 16, 0, evicted), workload("s1-a", "2", 4, 0, nil)}, "reserved quota of s1-a: 20, limit 16"},
		"quota above the pool when an eviction is lost":     {[]any{workload("s1-a", "1", 12, 0, evicted), workload("s1-a", "1", 12, 0, nil), workload("s1-b", "2", 16, 0, nil)}, ""},
		"quota above the pool by more than what was lost":   {[]any{workload("s1-a", "1", 4, 0, evicted), workload("s1-a", "1", 4, 0, nil), workload("s1-a", "3", 12, 0, nil), workload("s1-b", "2", 16, 0, nil)}, "reserved quota of all tenants: map[s1-a:16 s1-b:16], the pool has 24, 4 of lost evictions"},
		"a job that lost its quota after its eviction": {[]any{
			workload("s1-a", "1", 12, 0, evicted), workload("s1-a", "1", 12, 0, noQuota), workload("s1-a", "1", 12, 0, nil), workload("s1-b", "2", 16, 0, nil),
		}, "reserved quota of all tenants: map[s1-a:12 s1-b:16], the pool has 24"},
		"a job that has ended, and then has quota again": {[]any{workload("s1-a", "1", 4, 0, ended), workload("s1-a", "1", 4, 0, nil), workload("s1-a", "2", 16, 0, nil)}, ""},
		"a queue at the limit":                           {[]any{queue("s1.s1-a", 12, 4)}, ""},
		"a queue of a tenant that may have all":          {[]any{queue("s1.s1-c", 24, 1)}, ""},
		"a queue above the limit":                        {[]any{queue("s1.s1-a", 20, 0)}, "quota and borrowing of s1-a: 20, limit 16"},
		"a queue that may borrow above the limit":        {[]any{queue("s1.s1-a", 12, 5)}, "quota and borrowing of s1-a: 17, limit 16"},
		"a queue that may borrow without limit":          {[]any{queue("s1.s1-a", 0, -1)}, "quota and borrowing of s1-a"},
		"a queue that is no tenant's":                    {[]any{queue("s1.urgent", 20, 0)}, ""},
		"quota of a job that is stopped":                 {[]any{workload("s1-a", "1", 16, 0, func(w *kueue.Workload) { w.Spec.Active = new(false) }), workload("s1-a", "2", 4, 0, nil)}, ""},
		"quota that was given back":                      {[]any{workload("s1-a", "1", 16, 0, ended), workload("s1-a", "2", 4, 0, nil)}, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRecorder()
			r.open("s1")
			r.read("s1", func(a *account) { a.limits, a.capacity = map[string]int64{"s1-a": 16, "s1-b": 16, "s1-c": 24}, 24 })
			for _, e := range tc.events {
				r.OnAdd(e, false)
			}
			r.read("s1", func(a *account) {
				var said []string
				for _, e := range a.beyond() {
					said = append(said, e.said)
				}
				got := strings.Join(said, "; ")
				if (tc.want == "") != (got == "") || !strings.Contains(got, tc.want) {
					t.Errorf("said %q, want %q", got, tc.want)
				}
			})
		})
	}
}

// TestRecorderEvictions checks that a job is evicted once for each time that it loses its quota.
func TestRecorderEvictions(t *testing.T) {
	r := newRecorder()
	r.open("s1")
	priority := int32(names.ProtectedPriority)
	for _, status := range []metav1.ConditionStatus{"False", "True", "True", "False", "True"} {
		w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{
			Namespace: "s1-a", Name: "job-x-1", UID: "1", OwnerReferences: []metav1.OwnerReference{{Name: "x"}},
		}}
		w.Spec.Priority = &priority
		w.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadEvicted, Status: status, Reason: kueue.EvictedByPreemption}}
		r.OnUpdate(nil, w)
	}
	r.read("s1", func(a *account) {
		if len(a.evictions) != 2 {
			t.Fatalf("evictions %v, want 2", a.evictions)
		}
		if e := a.evictions[1]; e.tenant != "s1-a" || e.job != "x" || e.reason != kueue.EvictedByPreemption || !e.protected {
			t.Errorf("the second: %+v", e)
		}
	})
}
