// SPDX-License-Identifier: Apache-2.0

package computepool

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// exampleCluster has the example's nodes and a namespace for each of its tenants.
func exampleCluster(pool *v1alpha1.ComputePool) *Cluster {
	tenants := map[string]string{"team-a": "a", "team-b": "b", "team-c": "c"}
	return &Cluster{
		Pools: []*v1alpha1.ComputePool{pool}, Nodes: exampleNodes(), Tenants: tenants, Open: tenants,
		Priority: func(*batchv1.Job) int64 { return 0 },
	}
}

// protectedJob is a Job of one pod in the example's pool.
func protectedJob(namespace, name string, gpus int64, gate string) *batchv1.Job {
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: types.UID("uid-" + name),
		Labels: map[string]string{kueue.LabelPriorityClass: names.ProtectedClass, kueue.LabelQueue: "pool"},
	}}
	if gate != "" {
		job.Annotations = map[string]string{kueue.AnnotationAdmissionGatedBy: gate}
	}
	job.Spec.Template.Spec = testPod(namespace, name, "", gpus, nvidia).Spec
	return job
}

// protectedWorkload has quota for a Job.
func protectedWorkload(job *batchv1.Job, queue string, gpus int64) *kueue.Workload {
	controller := true
	return &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{Namespace: job.Namespace, Name: "job-" + job.Name, OwnerReferences: []metav1.OwnerReference{
			{Kind: "Job", Name: job.Name, UID: job.UID, Controller: &controller},
		}},
		Spec: kueue.WorkloadSpec{PriorityClassRef: &kueue.PriorityClassRef{Name: names.ProtectedClass}},
		Status: kueue.WorkloadStatus{Admission: &kueue.Admission{ClusterQueue: queue, PodSetAssignments: []kueue.PodSetAssignment{
			{ResourceUsage: v1.ResourceList{nvidia: *resource.NewQuantity(gpus, resource.DecimalSI)}},
		}}},
	}
}

func TestProtectedOf(t *testing.T) {
	t.Parallel()
	pool := examplePool()
	l := NewLayout(pool, nil, nil)
	gated := protectedJob("team-a", "gated", 4, names.GateProtected)
	twice := protectedJob("team-a", "twice", 4, "example.com/other, "+names.GateProtected)
	othersGate := protectedJob("team-a", "others", 2, "example.com/other")
	open := protectedJob("team-b", "open", 3, "")
	three, two := int32(3), int32(2)
	open.Spec.Parallelism, open.Spec.Completions = &three, &two
	done := protectedJob("team-b", "done", 8, "")
	done.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: v1.ConditionTrue}}
	plain := protectedJob("team-a", "plain", 8, "")
	plain.Labels[kueue.LabelPriorityClass] = "nvtopo-p5"
	stranger := protectedJob("nobodys", "stranger", 8, names.GateProtected)
	moved := protectedJob("team-a", "moved", 1, "")
	gone := protectedJob("team-c", "gone", 5, "")
	elsewhere := protectedJob("team-c", "elsewhere", 5, "")
	finishedWorkload := protectedWorkload(done, "pool.b", 8)
	finishedWorkload.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadFinished, Status: metav1.ConditionTrue}}

	got := ProtectedOf(l, map[string]string{"team-a": "a", "team-b": "b"},
		[]*batchv1.Job{gated, twice, othersGate, open, done, plain, stranger, moved},
		[]*kueue.Workload{protectedWorkload(moved, "pool.c", 2), protectedWorkload(gone, "pool.c", 5), protectedWorkload(elsewhere, "other.c", 5), finishedWorkload},
		func(j *batchv1.Job) int64 { return int64(len(j.Name)) })
	want := &Protected{
		Pins: Pins{"pool.a": {nvidia: 2}, "pool.b": {nvidia: 6}, "pool.c": {nvidia: 2}},
		Gone: Pins{"pool.c": {nvidia: 5}},
		Requests: []Request{
			{Job: "team-a/gated", Queue: "pool.a", Devices: Amounts{nvidia: 4}, Priority: 5},
			{Job: "team-a/twice", Queue: "pool.a", Devices: Amounts{nvidia: 4}, Priority: 5},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestProtect(t *testing.T) {
	t.Parallel()
	at := func(n int64) time.Time { return time.Unix(n, 0) }
	for name, tc := range map[string]struct {
		pins     Pins
		requests []Request
		want     string
	}{
		"within the guarantee": {requests: []Request{{Job: "x", Queue: "pool.a", Devices: Amounts{nvidia: 16}}}, want: "[x] map[pool.a:map[nvidia.com/gpu:16]]"},
		"above the limit":      {requests: []Request{{Job: "x", Queue: "pool.c", Devices: Amounts{nvidia: 17}}}, want: "[] map[]"},
		"what is pinned counts": {
			pins: Pins{"pool.c": {nvidia: 10}}, requests: []Request{{Job: "x", Queue: "pool.c", Devices: Amounts{nvidia: 7}}},
			want: "[] map[pool.c:map[nvidia.com/gpu:10]]",
		},
		"the more important, then the older": {
			requests: []Request{
				{Job: "late", Queue: "pool.c", Devices: Amounts{nvidia: 9}, Since: at(2)},
				{Job: "early", Queue: "pool.c", Devices: Amounts{nvidia: 9}, Since: at(1)},
				{Job: "urgent", Queue: "pool.c", Devices: Amounts{nvidia: 7}, Since: at(3), Priority: 1},
			},
			want: "[urgent early] map[pool.c:map[nvidia.com/gpu:16]]",
		},
		"a queue that is not the pool's": {requests: []Request{{Job: "x", Queue: "other.a", Devices: Amounts{nvidia: 1}}}, want: "[] map[]"},
		"no devices of the pool":         {requests: []Request{{Job: "x", Queue: "pool.a", Devices: Amounts{}}}, want: "[] map[]"},
		"of two resources both have to fit": {
			requests: []Request{{Job: "x", Queue: "pool.a", Devices: Amounts{nvidia: 1, amd: 1}}}, want: "[] map[]",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := examplePool()
			granted, _, pins := NewLayout(pool, nil, nil).Protect(capacityOf(pool), tc.pins, tc.requests)
			var jobs []string
			for _, r := range granted {
				jobs = append(jobs, r.Job)
			}
			if got := fmt.Sprint(jobs, " ", map[string]Amounts(pins)); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

// TestProtectedLimit: at most the guaranteed share is protected, unless the pool has another number;
// in two levels the outer one bounds all queues together, and no queue takes another one's guarantee.
func TestProtectedLimit(t *testing.T) {
	t.Parallel()
	limit := func(n int32) *int32 { return &n }
	quotas := func(q ...v1alpha1.TenantQuota) func(*v1alpha1.ComputePoolSpec) {
		return func(s *v1alpha1.ComputePoolSpec) { s.Quotas = q }
	}
	two := func(queues ...v1alpha1.PoolQueue) func(*v1alpha1.ComputePoolSpec) {
		return func(s *v1alpha1.ComputePoolSpec) {
			s.Quotas, s.Queues = []v1alpha1.TenantQuota{{Tenant: "a", Guaranteed: 16, Limit: limit(32)}}, queues
		}
	}
	for name, tc := range map[string]struct {
		pool  func(*v1alpha1.ComputePoolSpec)
		queue string
		most  int64 // so many devices are granted, and no more
	}{
		"a tenant's guarantee":           {pool: quotas(v1alpha1.TenantQuota{Tenant: "a", Guaranteed: 16, Limit: limit(32)}), queue: "pool.a", most: 16},
		"a tenant without one":           {pool: quotas(v1alpha1.TenantQuota{Tenant: "a"}), queue: "pool.a"},
		"more than it":                   {pool: quotas(v1alpha1.TenantQuota{Tenant: "a", Guaranteed: 16, Limit: limit(32), ProtectedLimit: limit(24)}), queue: "pool.a", most: 24},
		"less than it":                   {pool: quotas(v1alpha1.TenantQuota{Tenant: "a", Guaranteed: 16, ProtectedLimit: limit(4)}), queue: "pool.a", most: 4},
		"never more than can be shared":  {pool: quotas(v1alpha1.TenantQuota{Tenant: "a", ProtectedLimit: limit(64)}), queue: "pool.a", most: 56},
		"nothing of another's guarantee": {pool: quotas(v1alpha1.TenantQuota{Tenant: "a", ProtectedLimit: limit(64)}, v1alpha1.TenantQuota{Tenant: "b", Guaranteed: 20}), queue: "pool.a", most: 36},
		"a tenant that is not listed":    {pool: func(s *v1alpha1.ComputePoolSpec) { s.Quotas, s.DefaultQuota = nil, &v1alpha1.DefaultQuota{} }, queue: "pool.x"},
		"one that the default lets": {pool: func(s *v1alpha1.ComputePoolSpec) {
			s.Quotas, s.DefaultQuota = nil, &v1alpha1.DefaultQuota{ProtectedLimit: limit(2)}
		}, queue: "pool.x", most: 2},
		"a queue's guarantee": {pool: func(s *v1alpha1.ComputePoolSpec) {
			s.Quotas, s.Queues = nil, []v1alpha1.PoolQueue{{Name: "q", GuaranteedCapacity: 8}}
		}, queue: "pool.q", most: 8},
		"a queue's number": {pool: func(s *v1alpha1.ComputePoolSpec) {
			s.Quotas, s.Queues = nil, []v1alpha1.PoolQueue{{Name: "q", ProtectedCapacity: limit(3)}}
		}, queue: "pool.q", most: 3},
		"two levels, the tenant's":         {pool: two(v1alpha1.PoolQueue{Name: "q"}), queue: "pool.a.q", most: 16},
		"two levels, the queue's":          {pool: two(v1alpha1.PoolQueue{Name: "q", ProtectedCapacity: limit(5)}), queue: "pool.a.q", most: 5},
		"two levels, not another queue's":  {pool: two(v1alpha1.PoolQueue{Name: "q"}, v1alpha1.PoolQueue{Name: "r", GuaranteedCapacity: 10}), queue: "pool.a.q", most: 6},
		"two levels, the queue guaranteed": {pool: two(v1alpha1.PoolQueue{Name: "q"}, v1alpha1.PoolQueue{Name: "r", GuaranteedCapacity: 10}), queue: "pool.a.r", most: 16},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := examplePool()
			tc.pool(&pool.Spec)
			l, c := NewLayout(pool, []string{"x"}, nil), capacityOf(pool)
			var got int64
			for n := int64(1); n <= 64; n++ {
				granted, _, _ := l.Protect(c, nil, []Request{{Job: "j", Queue: tc.queue, Devices: Amounts{nvidia: n}}})
				if len(granted) > 0 {
					got = n
				}
			}
			if got != tc.most {
				t.Errorf("a job of %d devices is granted, want %d", got, tc.most)
			}
			pins := Pins{tc.queue: {nvidia: 1}}
			if granted, _, _ := l.Protect(c, pins, []Request{{Job: "j", Queue: tc.queue, Devices: Amounts{nvidia: tc.most}}}); len(granted) > 0 {
				t.Errorf("a job of %d devices is granted beside one", tc.most)
			}
		})
	}
}

// TestWithGone: a job was released, deleted, and then Kueue wrote that it has quota: the next one has
// been released.
func TestWithGone(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		pins, gone Pins
		want       Pins
	}{
		"there is room":                       {pins: Pins{"pool.c": {nvidia: 8}}, gone: Pins{"pool.c": {nvidia: 4}}, want: Pins{"pool.c": {nvidia: 12}}},
		"both are more than the limit":        {pins: Pins{"pool.c": {nvidia: 12}}, gone: Pins{"pool.c": {nvidia: 8}}, want: Pins{"pool.c": {nvidia: 16}}},
		"the limit was lowered below what is": {pins: Pins{"pool.c": {nvidia: 20}}, gone: Pins{"pool.c": {nvidia: 4}}, want: Pins{"pool.c": {nvidia: 20}}},
		"the pool has none of them":           {gone: Pins{"pool.c": {amd: 4}}, want: Pins{}},
		"a queue that is leaving":             {pins: Pins{"pool.z": {nvidia: 4}}, gone: Pins{"pool.z": {nvidia: 4}}, want: Pins{"pool.z": {nvidia: 8}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := examplePool()
			got := NewLayout(pool, nil, []Existing{{Name: "pool.z", Tenant: "z"}}).withGone(capacityOf(pool), tc.pins, tc.gone)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestPlanLimitWithGoneJobs: for any number of workloads whose jobs are gone, a tenant's queue
// promises no more than its limit.
func TestPlanLimitWithGoneJobs(t *testing.T) {
	t.Parallel()
	pool := examplePool()
	in := exampleCluster(pool)
	have := settledObjects(t, pool, in)
	have.Jobs = []*batchv1.Job{protectedJob("team-c", "next", 16, "")}
	in.Workloads = []*kueue.Workload{protectedWorkload(protectedJob("team-c", "gone", 4, ""), "pool.c", 4)}
	p := PlanFor(pool, in, have, false)
	for _, w := range p.Quotas {
		if keyOf(w.Object) == "ClusterQueue//pool.c" {
			q := quotaIn(w.Object, nvidia)
			if own, more := q.NominalQuota.Value(), q.BorrowingLimit.Value(); own != 16 || more != 0 {
				t.Errorf("quota %d and %d to borrow, want 16, the limit, and none", own, more)
			}
			return
		}
	}
	t.Errorf("the queue is not written: %+v", p.Quotas)
}

// TestRequestPriority: a queue's priority is added to that of its jobs; in a FIFO queue all jobs have
// the queue's.
func TestRequestPriority(t *testing.T) {
	t.Parallel()
	pool := examplePool()
	pool.Spec.Quotas = nil
	pool.Spec.Queues = []v1alpha1.PoolQueue{{Name: "best", Priority: 100}, {Name: "line", Priority: 50, Policy: v1alpha1.QueueFIFO}}
	var jobs []*batchv1.Job
	for _, queue := range []string{"best", "line"} {
		job := protectedJob("team-a", queue, 1, names.GateProtected)
		job.Labels[kueue.LabelQueue] = "pool." + queue
		jobs = append(jobs, job)
	}
	got := ProtectedOf(NewLayout(pool, nil, nil), map[string]string{"team-a": "a"}, jobs, nil, func(*batchv1.Job) int64 { return 7 })
	if len(got.Requests) != 2 || got.Requests[0].Priority != 107 || got.Requests[1].Priority != 50 {
		t.Errorf("requests %+v, want the priorities 107 and 50", got.Requests)
	}
}

// asKueueHasThem returns rendered objects as they are after they were written and Kueue has seen them.
func asKueueHasThem(r *Rendered) *Objects {
	out := &Objects{Flavors: []*kueue.ResourceFlavor{r.Flavor.DeepCopy()}}
	for _, q := range r.LocalQueues {
		out.LocalQueues = append(out.LocalQueues, q.DeepCopy())
	}
	for _, o := range r.Quotas {
		copied, _ := o.DeepCopyObject().(client.Object)
		if cq, ok := copied.(*kueue.ClusterQueue); ok {
			cq.Generation = 1
			cq.Status.Conditions = []metav1.Condition{{Type: kueue.ClusterQueueActive, Status: metav1.ConditionTrue, ObservedGeneration: 1}}
		}
		out.Quotas = append(out.Quotas, copied)
	}
	return out
}

// settledObjects returns the objects of a pool that needs no write.
func settledObjects(t *testing.T, pool *v1alpha1.ComputePool, in *Cluster) *Objects {
	t.Helper()
	members := MembersOf(pool, in.Pools, in.Nodes)
	c := CapacityOf(pool, members, nil, in.Pods, in.Tenants)
	have := asKueueHasThem(NewLayout(pool, tenantsOf(in.Open), nil).Render(c, in.Open, nil, false))
	if p := PlanFor(pool, in, have, false); !p.Idle() {
		t.Fatalf("nothing has changed, and the plan is %+v", p)
	}
	return have
}

func queueIn(o *Objects, name string) *kueue.ClusterQueue { return o.queues()[name] }

// TestPlanPinOrder: a protected job is released only once its queue has the quota, and Kueue has seen
// that.
func TestPlanPinOrder(t *testing.T) {
	t.Parallel()
	pool := examplePool()
	in := exampleCluster(pool)
	have := settledObjects(t, pool, in)
	have.Jobs = []*batchv1.Job{protectedJob("team-c", "safe", 4, names.GateProtected)}

	first := PlanFor(pool, in, have, false)
	var written []string
	for _, w := range first.Quotas {
		written = append(written, fmt.Sprintf("%s=%d", keyOf(w.Object), quotaIn(w.Object, nvidia).NominalQuota.Value()))
	}
	if diff := cmp.Diff([]string{"Cohort//pool=28", "ClusterQueue//pool.c=4"}, written); diff != "" {
		t.Errorf("written first (-want +got):\n%s", diff)
	}
	if len(first.Release) > 0 {
		t.Errorf("let in before the quota was written: %+v", first.Release)
	}

	for _, w := range first.Quotas {
		for i, o := range have.Quotas {
			if keyOf(o) == keyOf(w.Object) {
				o.(interface{ SetGeneration(int64) }).SetGeneration(2) // not yet observed
				switch o := have.Quotas[i].(type) {
				case *kueue.Cohort:
					o.Spec = w.Object.(*kueue.Cohort).Spec //nolint:forcetypeassert // keyOf has the kind
				case *kueue.ClusterQueue:
					o.Spec = w.Object.(*kueue.ClusterQueue).Spec //nolint:forcetypeassert // keyOf has the kind
				}
			}
		}
	}
	if p := PlanFor(pool, in, have, false); len(p.Quotas)+len(p.Release) > 0 {
		t.Errorf("before Kueue has seen it: %+v", p)
	}
	queueIn(have, "pool.c").Status.Conditions[0].ObservedGeneration = 2
	if p := PlanFor(pool, in, have, false); len(p.Quotas) > 0 || len(p.Release) != 1 || p.Release[0].Job != "team-c/safe" {
		t.Errorf("once Kueue has seen it: quotas %+v, release %+v; want the job let in", p.Quotas, p.Release)
	}
	have.Jobs[0] = protectedJob("team-c", "safe", 4, "")
	if p := PlanFor(pool, in, have, false); !p.Idle() || p.observed.Pins["pool.c"][nvidia] != 4 {
		t.Errorf("once it was let in: %+v, pins %v; want nothing to do", p, p.observed.Pins)
	}
}

// TestPlanLeavingQueue: a queue that the spec no longer has is removed in three steps: it is stopped,
// Kueue has seen that and it is empty, it is deleted.
func TestPlanLeavingQueue(t *testing.T) {
	t.Parallel()
	pool := examplePool()
	in := exampleCluster(pool)
	have := settledObjects(t, pool, in)
	pool.Spec.Quotas = pool.Spec.Quotas[:2]
	c := queueIn(have, "pool.c")
	c.Status.ReservingWorkloads = 1
	describe := func() string {
		p := PlanFor(pool, in, have, false)
		var out strings.Builder
		for _, w := range append(append([]Write{}, p.Quotas...), p.Local...) {
			fmt.Fprintf(&out, "%s delete %t; ", keyOf(w.Object), w.Delete)
		}
		return out.String()
	}
	if got, want := describe(), "ClusterQueue//pool.c delete false; LocalQueue/team-c/pool delete true; "; got != want {
		t.Errorf("first: %s, want %s", got, want)
	}
	c.Spec = PlanFor(pool, in, have, false).Quotas[0].Object.(*kueue.ClusterQueue).Spec //nolint:forcetypeassert // just checked
	c.Generation = 2
	have.LocalQueues = have.LocalQueues[:2]
	if got := describe(); got != "" {
		t.Errorf("while a job holds quota there: %s, want nothing", got)
	}
	c.Status.ReservingWorkloads = 0
	if got := describe(); got != "" {
		t.Errorf("before Kueue has seen that it is stopped: %s, want nothing", got)
	}
	c.Status.Conditions[0].ObservedGeneration = 2
	if got, want := describe(), "ClusterQueue//pool.c delete true; "; got != want {
		t.Errorf("last: %s, want %s", got, want)
	}
	c.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	if got := describe(); got != "" {
		t.Errorf("once it goes: %s, want nothing", got)
	}
}

// TestPlanMovedNamespace: the ClusterQueue of a LocalQueue cannot be changed: the LocalQueue is
// deleted and created again.
func TestPlanMovedNamespace(t *testing.T) {
	t.Parallel()
	pool := examplePool()
	in := exampleCluster(pool)
	have := settledObjects(t, pool, in)
	in.Open["team-a"] = "b"
	p := PlanFor(pool, in, have, false)
	if len(p.Local) != 1 || !p.Local[0].Delete || keyOf(p.Local[0].Object) != "LocalQueue/team-a/pool" {
		t.Fatalf("plan %+v, want the LocalQueue to go", p.Local)
	}
	have.LocalQueues = have.LocalQueues[1:]
	p = PlanFor(pool, in, have, false)
	made, _ := p.Local[0].Object.(*kueue.LocalQueue)
	if len(p.Local) != 1 || p.Local[0].Delete || made.Spec.ClusterQueue != "pool.b" {
		t.Errorf("plan %+v, want a LocalQueue of pool.b", p.Local)
	}
}

// TestPlanDeletedPool: a deleted pool releases no more jobs. Once none holds quota its objects are
// deleted, the flavor last.
func TestPlanDeletedPool(t *testing.T) {
	t.Parallel()
	pool := examplePool()
	in := exampleCluster(pool)
	have := settledObjects(t, pool, in)
	pool.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	queueIn(have, "pool.a").Status.ReservingWorkloads = 1
	p := PlanFor(pool, in, have, false)
	if len(p.Quotas) != 3 || len(p.Local) != 0 || p.Drained {
		t.Fatalf("plan %+v, want the three queues stopped", p)
	}
	for _, w := range p.Quotas {
		cq, _ := w.Object.(*kueue.ClusterQueue)
		if w.Delete || cq.Spec.StopPolicy != string(v1alpha1.StopHold) {
			t.Errorf("%s: delete %t, stop policy %s; want it held", cq.Name, w.Delete, cq.Spec.StopPolicy)
		}
		queueIn(have, cq.Name).Spec = cq.Spec
	}
	if p := PlanFor(pool, in, have, false); !p.Idle() || p.Drained {
		t.Errorf("while a job holds quota: %+v, want nothing to do", p)
	}
	queueIn(have, "pool.a").Status.ReservingWorkloads = 0
	if p = PlanFor(pool, in, have, false); len(p.Quotas) != 4 || len(p.Local) != 3 || len(p.Last) != 0 {
		t.Errorf("once none does: %+v, want all but the flavor deleted", p)
	}
	have.Quotas, have.LocalQueues = nil, nil
	if p = PlanFor(pool, in, have, false); len(p.Last) != 1 || p.Drained {
		t.Errorf("then: %+v, want the flavor deleted", p)
	}
	have.Flavors = nil
	if p = PlanFor(pool, in, have, false); !p.Drained || !p.Idle() {
		t.Errorf("at last: %+v, want it drained", p)
	}
}

// TestPlanOthersObjects: a LocalQueue that a tenant has created is left to the tenant, and a pool that
// is being deleted creates no objects.
func TestPlanOthersObjects(t *testing.T) {
	t.Parallel()
	pool := examplePool()
	in := exampleCluster(pool)
	have := settledObjects(t, pool, in)
	own := have.LocalQueues[0]
	have.LocalQueues, have.OtherLocalQueues = have.LocalQueues[1:], []*kueue.LocalQueue{own}
	p := PlanFor(pool, in, have, false)
	if diff := cmp.Diff([]string{"LocalQueue " + own.Namespace + "/pool"}, p.observed.Others); diff != "" || !p.Idle() {
		t.Errorf("plan %+v, LocalQueues of others (-want +got)\n%s", p, diff)
	}
	status := StatusOf(pool, p.observed)
	ready := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady)
	if ready.Status != metav1.ConditionTrue || !strings.Contains(ready.Message, "LocalQueue "+own.Namespace+"/pool") {
		t.Errorf("condition %+v, want the pool ready and the LocalQueue named", ready)
	}

	have.Flavors = nil // its label was removed
	have.Quotas = have.Quotas[1:]
	if p = PlanFor(pool, in, have, false); len(p.Flavor) != 1 || len(p.Quotas) != 1 || p.Quotas[0].Over != nil {
		t.Errorf("plan %+v, want the flavor and the Cohort made", p)
	}
	pool.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	p = PlanFor(pool, in, have, false)
	if len(p.Flavor) != 0 || len(p.Quotas) != 3 || slices.ContainsFunc(p.Quotas, func(w Write) bool { return w.Over == nil }) {
		t.Errorf("plan %+v, want the three queues stopped, and nothing made", p)
	}
}
