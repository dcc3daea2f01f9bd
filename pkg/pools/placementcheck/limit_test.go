// SPDX-License-Identifier: Apache-2.0

package placementcheck

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// limited gives the environment's queue a quota of its own, and a borrowing limit.
func (e *testEnv) limited(nominal, borrowing int64) {
	cq := &e.ClusterQueues[0]
	cq.Spec.CohortName = "pool"
	cq.Spec.ResourceGroups = quotaGroups(nominal, borrowing)
}

func quotaGroups(nominal, borrowing int64) []kueue.ResourceGroup {
	q := kueue.ResourceQuota{Name: gpu, NominalQuota: *resource.NewQuantity(nominal, resource.DecimalSI)}
	if borrowing >= 0 {
		q.BorrowingLimit = resource.NewQuantity(borrowing, resource.DecimalSI)
	}
	return []kueue.ResourceGroup{{
		CoveredResources: []v1.ResourceName{gpu},
		Flavors:          []kueue.FlavorQuotas{{Name: "pool", Resources: []kueue.ResourceQuota{q}}},
	}}
}

// inQueue sets the ClusterQueue of a Workload's quota.
func inQueue(w *kueue.Workload, queue string, gpus int64) *kueue.Workload {
	w.Status.Admission.ClusterQueue = queue
	w.Status.Admission.PodSetAssignments[0].ResourceUsage = v1.ResourceList{gpu: *resource.NewQuantity(gpus, resource.DecimalSI)}
	return w
}

// running makes a Workload one that was told to start.
func running(w *kueue.Workload) *kueue.Workload {
	w.Status.AdmissionChecks[0].State = kueue.CheckReady
	return w
}

// ending makes a pod one that was deleted, and has ten minutes left.
func ending(p *v1.Pod) {
	p.DeletionTimestamp = &metav1.Time{Time: noon.Add(10 * time.Minute)}
}

// TestLimitWithEndingPods: a job starts only if the sum that its queue holds, including ending
// pods, stays within the limit: quota is free as soon as they begin to end.
func TestLimitWithEndingPods(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(e *testEnv)
		want   string // in the message of a job that waits; empty: it starts
	}{
		"nobody else is there": {change: func(*testEnv) {}},
		"pods of a deleted job are ending": {
			change: func(e *testEnv) { e.pod("old", "a-0", ending, 0, 1, 2, 3) },
			want:   "the limit of ClusterQueue cq is 6 nvidia.com/gpu, and 4 are held, 4 of them by pods that are ending or have no quota: this job's 4 wait until these are gone",
		},
		"they were not told to end yet": {
			change: func(e *testEnv) { e.pod("old", "a-0", ofJob("gone"), 0, 1, 2, 3) }, want: "and 4 are held, 4 of them",
		},
		"there is room for both": {change: func(e *testEnv) { e.pod("old", "a-0", ending, 0, 1) }},
		"they have ended": {
			change: func(e *testEnv) {
				e.pod("old", "a-0", func(p *v1.Pod) { ending(p); p.Status.Phase = v1.PodFailed }, 0, 1, 2, 3)
			},
		},
		"they have not started": {
			change: func(e *testEnv) {
				e.pod("old", "a-0", func(p *v1.Pod) { p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: kueue.GateAdmission}} }, 0, 1, 2, 3)
			},
		},
		"they are on a node that is lost": {
			change: func(e *testEnv) {
				e.node("lost", "dgx-a100", nil).Status.Conditions = nil
				e.pod("old", "lost", ending, 0, 1, 2, 3)
			},
		},
		"they are of a namespace without a queue": {
			change: func(e *testEnv) {
				e.pod("old", "a-0", func(p *v1.Pod) { ending(p); p.Namespace = "nobodys" }, 0, 1, 2, 3)
			},
		},
		"they are on another pool's nodes": {
			change: func(e *testEnv) {
				e.node("other", "dgx-a100", nil).Labels[poolLabel] = "other"
				e.pod("old", "other", ending, 0, 1, 2, 3)
			},
		},
		"a job that runs has the rest of the quota, and an ending pod": {
			change: func(e *testEnv) {
				e.Workloads = append(e.Workloads, *running(inQueue(job("runs", 1, 2, nil), "cq", 2)))
				e.pod("new", "a-0", ofJob("runs"), 0, 1)
				e.pod("old", "a-0", func(p *v1.Pod) { ofJob("runs")(p); ending(p) }, 2)
			},
			want: "and 3 are held, 1 of them",
		},
		"a job that runs has more pods than quota": {
			change: func(e *testEnv) {
				e.Workloads = append(e.Workloads, *running(inQueue(job("runs", 1, 2, nil), "cq", 2)))
				e.pod("one", "a-0", ofJob("runs"), 0, 1)
				e.pod("two", "a-0", ofJob("runs"), 2, 3)
			},
			want: "and 4 are held, 2 of them",
		},
		"a job that was told to start, and has no pod yet": {
			change: func(e *testEnv) {
				e.Workloads = append(e.Workloads, *running(inQueue(job("starts", 1, 2, nil), "cq", 2)))
				e.pod("old", "a-0", ending, 0)
			},
			want: "and 3 are held, 1 of them",
		},
		"the limit is that of the Cohort around two queues": {
			change: func(e *testEnv) {
				e.limited(0, 100)
				e.ClusterQueues[0].Spec.CohortName = "tenant"
				e.ClusterQueues = append(e.ClusterQueues, kueue.ClusterQueue{
					ObjectMeta: metav1.ObjectMeta{Name: "cq-low"}, Spec: kueue.ClusterQueueSpec{CohortName: "tenant", ResourceGroups: quotaGroups(2, 100)},
				})
				e.LocalQueues[0].Name = "pool.high"
				e.LocalQueues = append(e.LocalQueues, kueue.LocalQueue{
					ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "pool.low"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "cq-low"},
				})
				e.Cohorts = []kueue.Cohort{
					{ObjectMeta: metav1.ObjectMeta{Name: "pool"}, Spec: kueue.CohortSpec{ResourceGroups: quotaGroups(10, -1)}},
					{ObjectMeta: metav1.ObjectMeta{Name: "tenant"}, Spec: kueue.CohortSpec{ParentName: "pool", ResourceGroups: quotaGroups(1, 2)}},
				}
				e.pod("old", "a-0", func(p *v1.Pod) { ending(p); p.Labels = map[string]string{kueue.LabelLocalQueue: "pool.low"} }, 0, 1)
			},
			want: "the limit of Cohort tenant is 5 nvidia.com/gpu, and 2 are held, 2 of them",
		},
		"a queue that may borrow all that there is": {
			change: func(e *testEnv) {
				e.limited(4, -1)
				e.pod("old", "a-0", ending, 0, 1, 2, 3)
			},
		},
		"a queue that is in no Cohort borrows nothing": {
			change: func(e *testEnv) {
				e.limited(4, -1)
				e.ClusterQueues[0].Spec.CohortName = ""
				e.pod("old", "a-0", ending, 0)
			},
			want: "the limit of ClusterQueue cq is 4 nvidia.com/gpu, and 1 are held",
		},
	} {
		t.Run(name, func(t *testing.T) {
			e, g := newTestEnv(t), NewGraphs()
			e.racks(2, "a")
			e.limited(2, 4)
			e.Workloads = []kueue.Workload{*inQueue(job("next", 2, 2, nil), "cq", 4)}
			tc.change(e)
			e.carryOut(g)
			c := checkOf(&e.Workloads[0])
			want := kueue.CheckReady
			if tc.want != "" {
				want = kueue.CheckPending
			}
			if c.State != want || !strings.Contains(c.Message, tc.want) {
				t.Errorf("the check %s says %s: %s; want %s with %q", names.CheckPlacementObject, c.State, c.Message, want, tc.want)
			}
		})
	}
}

// TestLimitOfOneRound: of two jobs in one round, one starts: its promise is used for the other's
// decision.
func TestLimitOfOneRound(t *testing.T) {
	e, g := newTestEnv(t), NewGraphs()
	e.racks(1, "a")
	e.limited(0, 4)
	e.pod("old", "a-0", ending, 0)
	e.Workloads = []kueue.Workload{*inQueue(job("first", 1, 2, nil), "cq", 2), *inQueue(job("second", 1, 2, nil), "cq", 2)}
	if got, want := e.carryOut(g), map[string]string{"first": "Ready", "second": "Pending"}; !equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	e.Pods = nil
	if got, want := e.carryOut(g), map[string]string{"second": "Ready"}; !equal(got, want) {
		t.Errorf("after the pod is gone got %v, want %v", got, want)
	}
}
