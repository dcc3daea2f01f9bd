// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nvtopo/nvtopo/pkg/inspect/clusterobjects"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/diagnosis"
)

// TestNoScheduler: that no scheduler leads is the cause of a pod that has a place, and evidence of another
// cause. A scheduler of which that is not known is not accused.
func TestNoScheduler(t *testing.T) {
	const why = "no scheduler leads: Lease nvtopo-system/nvtopo-scheduler was last renewed at 2026-11-24T11:57:30Z"
	waits := func(t *testing.T, w *testEnv) { t.Helper(); w.node(t, "n0", cube, nil).waits(pod("asks", 1).Obj()) }
	said := func(t *testing.T, w *testEnv) {
		t.Helper()
		waits(t, w)
		w.pod("asks").Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionFalse, Message: "0/1 nodes are available"}}
	}
	for name, tc := range map[string]struct {
		build func(t *testing.T, w *testEnv)
		age   time.Duration // of the Lease
		want  Cause
		says  []string // the reason first, then evidence
		not   string   // in reason or evidence
	}{
		"a pod that has a place":              {build: waits, age: 150 * time.Second, want: "NoScheduler", says: []string{why, "n0 would take the pod now"}},
		"one that the scheduler refused once": {build: said, age: 150 * time.Second, want: "NoScheduler", says: []string{why, "n0 would take the pod now"}},
		"a scheduler leads":                   {build: waits, age: time.Second, want: WaitsForItsTurn, not: "leads"},
		"one may be about to take over":       {build: waits, age: 30 * time.Second, want: WaitsForItsTurn, not: "leads"},
		"the leader has just given its Lease up": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				waits(t, w)
				at := slices.IndexFunc(w.Leases, func(l coordinationv1.Lease) bool { return l.Name == "nvtopo-scheduler" })
				w.Leases[at].Spec.HolderIdentity, w.Leases[at].Spec.LeaseDurationSeconds = new(""), new(int32(1))
			},
			age: time.Second, want: "NoScheduler", says: []string{"no scheduler leads: Lease nvtopo-system/nvtopo-scheduler has no holder", "n0 would take the pod now"},
		},
		"a pod without a place has its reason": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "n0", cube, nil).holds(t, "h0", "n0", 0, 1, 2, 3, 4, 5, 6, 7)
				w.waits(pod("asks", 1).Obj())
			},
			age: 150 * time.Second, want: FewGPUs, says: []string{"the pod asks 1 nvidia.com/gpu, and 0 are free on the nodes that it may run on", why},
		},
		"a gang that has a place": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "n0", cube, nil).group("train", 2, []*v1.Pod{pod("asks", 4).Obj(), pod("other", 4).Obj()})
			},
			age: 150 * time.Second, want: "NoScheduler", says: []string{why, "the gang has a place now"},
		},
		"a gang without a place has its reason": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "n0", cube, nil).holds(t, "h0", "n0", 0)
				w.group("train", 2, []*v1.Pod{pod("asks", 4).Obj(), pod("other", 4).Obj()})
			},
			age: 150 * time.Second, want: FewGPUs, says: []string{"", why},
		},
		"the profile is published with another Lease, which is there": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				waits(t, w)
				w.published("ours", "topology-aware-scheduler")
				w.leads("ours", time.Second)
			},
			age: time.Hour, want: WaitsForItsTurn, not: "leads",
		},
		"the profile is published without a Lease": {
			build: func(t *testing.T, w *testEnv) { t.Helper(); waits(t, w); w.published("", "topology-aware-scheduler") },
			age:   time.Hour, want: WaitsForItsTurn, not: "leads",
		},
		"the Lease that is published is not there": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				waits(t, w)
				w.published("ours", "topology-aware-scheduler")
			},
			age: time.Second, want: "NoScheduler", says: []string{"no scheduler leads: there is no Lease nvtopo-system/ours"},
		},
		"the pod's profile is published by nobody": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				waits(t, w)
				w.published("nvtopo-scheduler", "another")
				w.Profiles = append(w.Profiles, assumed("topology-aware-scheduler"))
			},
			age: time.Hour, want: WaitsForItsTurn, not: "leads",
		},
		"another scheduler's pod": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				w.node(t, "n0", cube, nil).waits(pod("asks", 1).Scheduler("third").Obj())
				w.Profiles = append(w.Profiles, assumed("third"))
			},
			age: time.Hour, want: WaitsForItsTurn, not: "leads",
		},
		"pods are placed without that Lease": {
			build: func(t *testing.T, w *testEnv) {
				t.Helper()
				waits(t, w)
				w.holds(t, "h0", "n0", 0)
				w.pod("h0").Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionTrue, LastTransitionTime: metav1.NewTime(now.Add(-time.Minute))}}
			},
			age: time.Hour, want: WaitsForItsTurn, not: "leads",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestEnv()
			w.leads("nvtopo-scheduler", tc.age)
			tc.build(t, w)
			e, err := Pod(w.World, "team", "asks")
			if err != nil {
				t.Fatal(err)
			}
			all := append([]string{e.Reason}, e.Evidence...)
			if e.Cause != tc.want {
				t.Errorf("cause %s (%q), want %s", e.Cause, all, tc.want)
			}
			for i, text := range tc.says {
				if i == 0 && !strings.HasPrefix(e.Reason, text) || i > 0 && !slices.ContainsFunc(e.Evidence, func(s string) bool { return strings.HasPrefix(s, text) }) {
					t.Errorf("reason and evidence %q, want %q", all, text)
				}
			}
			if tc.not != "" && strings.Contains(strings.Join(all, "; "), tc.not) {
				t.Errorf("reason and evidence %q speak of who leads", all)
			}
			if e.Cause == "NoScheduler" && !strings.Contains(e.Next, "kubectl -n nvtopo-system get deploy,pods") {
				t.Errorf("next step %q, want the command that shows why", e.Next)
			}
		})
	}
}

// TestNothingInstalled: in a cluster that nothing of nvtopo is in, pods and gangs wait for want of a scheduler,
// whatever their nodes lack.
func TestNothingInstalled(t *testing.T) {
	noGraph := causeOf(placement.NoGraph)
	for name, tc := range map[string]struct {
		change func(w *testEnv)
		want   Cause
	}{
		"nvtopo was taken out":                         {func(*testEnv) {}, NoScheduler},
		"its definitions are gone as well":             {func(w *testEnv) { w.NoDefinition = true }, NoScheduler},
		"another program of the namespace has a Lease": {func(w *testEnv) { w.leads("another", time.Second) }, NoScheduler},
		"Leases are not known":                         {func(w *testEnv) { w.LeasesKnown = false }, noGraph},
		"NodeGPUTopologies may not be read": {func(w *testEnv) {
			w.Unread = map[clusterobjects.Kind]error{clusterobjects.Topologies: apierrors.NewForbidden(schema.GroupResource{}, "", nil)}
		}, noGraph},
		"an exporter has a Lease": {func(w *testEnv) { w.leads("exporter-n0", time.Second) }, noGraph},
		"a scheduler leads":       {func(w *testEnv) { w.leads("nvtopo-scheduler", time.Second) }, noGraph},
		"the pod names another scheduler that is asked about": {func(w *testEnv) {
			w.Profiles = append(w.Profiles, assumed("third"))
			for i := range w.Pods {
				w.Pods[i].Spec.SchedulerName = "third"
			}
		}, noGraph},
	} {
		for kind, build := range map[string]func(w *testEnv){
			"a pod":  func(w *testEnv) { w.waits(pod("asks", 1).Obj()) },
			"a gang": func(w *testEnv) { w.group("train", 1, []*v1.Pod{pod("asks", 1).Obj()}) },
		} {
			t.Run(name+", "+kind, func(t *testing.T) {
				w := newTestEnv()
				w.node(t, "n0", cube, nil)
				w.Topologies, w.Leases, w.LeasesKnown = nil, nil, true
				build(w)
				tc.change(w)
				e, err := Pod(w.World, "team", "asks")
				if err != nil {
					t.Fatal(err)
				}
				next := strings.HasPrefix(e.Next, "install nvtopo: kubectl apply") && strings.HasSuffix(e.Next, "or give the pods another spec.schedulerName")
				if e.Cause != tc.want || next != (tc.want == NoScheduler) {
					t.Errorf("%s: %s, next step %q, want %s", e.Cause, e.Reason, e.Next, tc.want)
				}
			})
		}
	}
}

// TestNoSchedulerElsewhere: the next step names the namespace in which the scheduler runs.
func TestNoSchedulerElsewhere(t *testing.T) {
	w := newTestEnv()
	w.node(t, "n0", cube, nil).waits(pod("asks", 1).Obj())
	w.published("nvtopo-scheduler", "topology-aware-scheduler")
	w.Published.LeaderLease.Namespace = "gpus"
	w.leads("nvtopo-scheduler", time.Hour)
	w.Leases[len(w.Leases)-1].Namespace = "gpus"
	e, err := Pod(w.World, "team", "asks")
	if err != nil || e.Cause != NoScheduler || !strings.Contains(e.Next, "kubectl -n gpus get deploy,pods") {
		t.Errorf("%s, next step %q (%v), want NoScheduler and the namespace gpus", e.Cause, e.Next, err)
	}
}

// TestTurnElsewhere: the next step of a pod that waits for its turn has the namespace in which the
// scheduler runs.
func TestTurnElsewhere(t *testing.T) {
	for name, build := range map[string]func(w *testEnv){
		"a pod":  func(w *testEnv) { w.waits(pod("asks", 1).Obj()) },
		"a gang": func(w *testEnv) { w.group("train", 1, []*v1.Pod{pod("asks", 1).Obj()}) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestEnv()
			build(w.node(t, "n0", cube, nil))
			w.published("nvtopo-scheduler", "topology-aware-scheduler")
			w.Published.LeaderLease.Namespace = "gpus"
			const want = "wait a moment: nvtopo get pods -A --state pending shows what waits beside it; if it stays, see whether the scheduler runs: kubectl -n gpus get deploy,pods"
			if e, err := Pod(w.World, "team", "asks"); err != nil || e.Cause != WaitsForItsTurn || e.Next != want {
				t.Errorf("%s, next step %q (%v), want WaitsForItsTurn, %q", e.Cause, e.Next, err, want)
			}
		})
	}
}

// leads adds a leader's Lease that was last renewed so long ago.
func (e *testEnv) leads(name string, age time.Duration) {
	e.Leases = append(e.Leases, coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "nvtopo-system"},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new("pod-1_x"), LeaseDurationSeconds: new(int32(15)), RenewTime: new(metav1.NewMicroTime(now.Add(-age))),
		},
	})
}

// published has a scheduler publish its Lease and the shipped profile under a name.
func (e *testEnv) published(lease, profile string) {
	e.Published = &diagnosis.Profiles{LeaderLease: &diagnosis.LeaderLease{Namespace: "nvtopo-system", Name: lease}}
	p := assumed(profile)
	p.Assumed = false
	e.Profiles = []Profile{p}
}
