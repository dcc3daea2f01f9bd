// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	schedcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// member is a pod's place on a node, with the GPUs at these positions.
func member(tb testing.TB, pod *v1.Pod, node string, gpus ...int) GangMember {
	tb.Helper()
	return GangMember{Pod: pod, Demand: demandOf(tb, pod), Node: node, GPUs: nvtopo.MaskOf(gpus...)}
}

// phases returns the phases of all reservations, by pod.
func (s *State) phases() map[string]string {
	out := map[string]string{}
	for _, r := range s.Allocations.Dump() {
		out[string(r.UID)] += r.Phase
	}
	return out
}

// mustPlan reserves for a gang.
func (e *testEnv) mustPlan(t *testing.T, l fwk.NodeInfoLister, members ...GangMember) {
	t.Helper()
	if failed, reason := e.GangReserver.ReserveGang(members, l, nil, nil); failed >= 0 {
		t.Fatalf("pod %s: %s", members[failed].Pod.Name, reason)
	}
}

// TestGangAtomicity: a gang is reserved as a whole or not at all.
func TestGangAtomicity(t *testing.T) {
	p, q := schedtest.Pod("p").GPUs(2).Obj(), schedtest.Pod("q").GPUs(2).Obj()
	linked := schedtest.Pod("linked").GPUs(2).Annotation(podrequest.MinLinkKey, "NVLINK").Obj()
	for name, tc := range map[string]struct {
		before  func(t *testing.T, r *testEnv)
		pods    func(t *testing.T, r *testEnv) []*v1.Pod // on the node
		members []GangMember
		want    int
		reason  placement.Reason
	}{
		"all sets are free": {
			members: []GangMember{member(t, p, "n", 0, 1), member(t, q, "n", 4, 5)},
			want:    -1,
		},
		"two members are to have one GPU": {
			members: []GangMember{member(t, p, "n", 0, 1), member(t, q, "n", 1, 2)},
			want:    1, reason: placement.FewGPUs,
		},
		"a set is not as large as was asked": {
			members: []GangMember{member(t, p, "n", 0, 1, 2)},
			reason:  placement.FewGPUs,
		},
		"a set is another pod's": {
			pods: func(t *testing.T, r *testEnv) []*v1.Pod {
				t.Helper()
				return []*v1.Pod{on(t, r.State, schedtest.Pod("other").GPUs(1).Obj(), "n", 5)}
			},
			members: []GangMember{member(t, p, "n", 0, 1), member(t, q, "n", 4, 5)},
			want:    1, reason: placement.FewGPUs,
		},
		"a pod is known by count, and leaves too few": {
			pods: func(*testing.T, *testEnv) []*v1.Pod {
				return []*v1.Pod{schedtest.Pod("other").GPUs(5).Node("n").Obj()}
			},
			members: []GangMember{member(t, p, "n", 0, 1), member(t, q, "n", 4, 5)},
			want:    1, reason: placement.FewGPUs,
		},
		"a set has not the links that were asked": {
			members: []GangMember{member(t, p, "n", 0, 1), member(t, linked, "n", 2, 5)},
			want:    1, reason: placement.FewLinked,
		},
		"a pod went": {
			before:  func(_ *testing.T, r *testEnv) { r.podDeleted("q") },
			members: []GangMember{member(t, p, "n", 0, 1), member(t, q, "n", 4, 5)},
			want:    1, reason: placement.PodGone,
		},
		"an attempt of a pod goes on": {
			before: func(t *testing.T, r *testEnv) {
				t.Helper()
				info, l := r.view(t)
				r.Allocations.Assume(demandOf(t, q), q, info, l)
			},
			members: []GangMember{member(t, p, "n", 0, 1), member(t, q, "n", 4, 5)},
			want:    1, reason: placement.AttemptGoesOn,
		},
		"the node is gone": {
			members: []GangMember{member(t, p, "n", 0, 1), member(t, q, "m", 4, 5)},
			want:    1, reason: placement.NoGraph,
		},
		"the graph does not count any more": {
			before:  func(_ *testing.T, r *testEnv) { r.clock.now = r.clock.now.Add(3 * 365 * 24 * time.Hour) },
			members: []GangMember{member(t, p, "n", 0, 1)},
			reason:  placement.StaleGraph,
		},
		"a pod without GPUs goes anywhere": {
			members: []GangMember{member(t, p, "n", 0, 1), member(t, schedtest.Pod("launcher").Obj(), "n")},
			want:    -1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newTestEnv(t, "dgx1-v100")
			if tc.before != nil {
				tc.before(t, r)
			}
			before := len(r.Allocations.Dump())
			var pods []*v1.Pod
			if tc.pods != nil {
				pods = tc.pods(t, r)
			}
			_, l := r.view(t, pods...)
			members := tc.members
			failed, reason := r.GangReserver.ReserveGang(members, l, nil, nil)
			if failed != tc.want || reason != tc.reason {
				t.Fatalf("failed %d, %q; want %d, %q", failed, reason, tc.want, tc.reason)
			}
			want := before
			if tc.want < 0 {
				want += len(members)
			}
			if got := r.Allocations.Dump(); len(got) != want {
				t.Errorf("in flight: %+v, want %d", got, want)
			}
			checkMemos(t, r.State, l)
		})
	}
}

// TestPlannedPodGPUs: a planned pod finds its GPUs.
func TestPlannedPodGPUs(t *testing.T) {
	r := newTestEnv(t, "dgx1-v100")
	p, q := schedtest.Pod("p").GPUs(2).Obj(), schedtest.Pod("q").GPUs(2).Obj()
	info, l := r.view(t)
	r.mustPlan(t, l, member(t, p, "n", 2, 5), member(t, q, "n", 0, 7)) // not the ones that Reserve would choose
	if got := r.Nodes.Judge(demandOf(t, schedtest.Pod("other").GPUs(5).Obj()), info, l).Reason; got != placement.FewGPUs {
		t.Errorf("another pod of 5 GPUs beside a gang that is planned with 4 of 8: %q", got)
	}
	if node, ok := r.GangReserver.Planned("q"); !ok || node != "n" {
		t.Errorf("q is planned on %q, %t", node, ok)
	}
	a, ended := r.GangReserver.ReservePlanned("q", "n")
	if ended || a == nil || a.Mask(testResource, r.Nodes.Node("n").Accels[0].Graph) != nvtopo.MaskOf(0, 7) || !a.Enforced || !a.Assumed.Equal(r.clock.now) {
		t.Errorf("got %+v, ended %t; want GPUs 0 and 7", a, ended)
	}
	if again, reason := r.Allocations.Assume(demandOf(t, q), q, info, l); again != a || reason != placement.Fits {
		t.Errorf("Reserve gives %+v, %s; want the same", again, reason)
	}
	if diff := cmp.Diff(map[string]string{"p": "planned", "q": "reserved"}, r.phases()); diff != "" {
		t.Errorf("phases (-want +got):\n%s", diff)
	}
	if _, ok := r.GangReserver.Planned("q"); ok {
		t.Error("q is still said to wait for its cycle")
	}
	first, reason := r.Allocations.Assume(demandOf(t, p), p, info, l) // the plan was begun after PreFilter, which did not see it
	if reason != placement.Fits || first.Mask(testResource, r.Nodes.Node("n").Accels[0].Graph) != nvtopo.MaskOf(2, 5) {
		t.Errorf("the first pod got %+v, %s", first, reason)
	}
}

// TestPlanEnds ends, in several ways, the plan of p, which has been reserved, and of q, which has not,
// each of all 8 GPUs of its node.
func TestPlanEnds(t *testing.T) {
	type step func(t *testing.T, r *testEnv, p, q *v1.Pod)
	boundOn := func(node string, gpus ...int) step {
		return func(t *testing.T, r *testEnv, _, q *v1.Pod) {
			t.Helper()
			bound := q.DeepCopy()
			if gpus != nil {
				bound = on(t, r.State, bound, node, gpus...)
			}
			bound.Spec.NodeName, bound.ResourceVersion = node, "7"
			r.handlers.podEvent(q, bound)
			r.listers.pods = fixedStore{"q": bound}
		}
	}
	for name, tc := range map[string]struct {
		steps []step
		want  map[string]string
		// wantBefore are the phases before the next cycle's Sweep.
		wantBefore map[string]string
	}{
		"nothing": {nil, map[string]string{"p": "reserved", "q": "planned"}, nil},
		"the pod that waits is deleted": {
			[]step{func(_ *testing.T, r *testEnv, _, _ *v1.Pod) { r.podDeleted("q") }},
			map[string]string{"p": "reserved"},
			map[string]string{"p": "reserved", "q": "void"},
		},
		"the first fails before a write, and the rest is ended": {[]step{func(_ *testing.T, r *testEnv, _, _ *v1.Pod) {
			r.Allocations.Forget("p", "n")
			r.GangReserver.EndPlanned("p", "q")
		}}, map[string]string{}, nil},
		"the rest is ended, and the first not told yet": {[]step{func(_ *testing.T, r *testEnv, _, _ *v1.Pod) {
			r.GangReserver.EndPlanned("p", "q")
		}}, map[string]string{"p": "reserved"}, nil},
		"the cycle of the pod that waits fails before its Reserve": {[]step{func(_ *testing.T, r *testEnv, _, _ *v1.Pod) {
			r.Allocations.Forget("q", "m")
		}}, map[string]string{"p": "reserved"}, nil},
		"somebody binds the pod that waits elsewhere":             {[]step{boundOn("n")}, map[string]string{"p": "reserved"}, nil},
		"somebody binds it where it is planned, without a choice": {[]step{boundOn("m")}, map[string]string{"p": "reserved"}, map[string]string{"p": "reserved", "q": "void"}},
		"a former leader binds it there with other GPUs":          {[]step{boundOn("m", 0, 1)}, map[string]string{"p": "reserved"}, map[string]string{"p": "reserved", "q": "void"}},
		"the gang is committed, and a write is refused": {[]step{func(_ *testing.T, r *testEnv, _, _ *v1.Pod) {
			r.GangReserver.KeepPlanned("p", "q")
			attempt := r.Binder.Attempt("p", "n")
			attempt.BindingBegan()
			attempt.BindingRefused()
			r.Allocations.Forget("p", "n")
		}}, map[string]string{"p": "planned", "q": "planned"}, nil},
		"the gang is committed, and a write has no answer": {[]step{func(_ *testing.T, r *testEnv, _, _ *v1.Pod) {
			r.GangReserver.KeepPlanned("p", "q")
			r.Binder.Attempt("p", "n").BindingBegan()
			r.Allocations.Forget("p", "n")
		}}, map[string]string{"p": "doubtful", "q": "planned"}, nil},
		"the gang is committed, a member fails, and the gang is given up": {[]step{func(_ *testing.T, r *testEnv, _, _ *v1.Pod) {
			r.GangReserver.KeepPlanned("p", "q")
			r.Allocations.Forget("p", "n")
			r.GangReserver.EndPlanned("p", "q")
		}}, map[string]string{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := newTestEnv(t, "dgx1-v100")
			nodes := []*v1.Node{r.node, addNode(t, r.State, "m", "dgx1-v100")}
			p, q := schedtest.Pod("p").GPUs(8).Obj(), schedtest.Pod("q").GPUs(8).Obj()
			r.listers.pods = fixedStore{"p": p, "q": q}
			l := schedcache.NewSnapshot(nil, nodes).NodeInfos()
			all := []int{0, 1, 2, 3, 4, 5, 6, 7}
			r.mustPlan(t, l, member(t, p, "n", all...), member(t, q, "m", all...))
			if _, ended := r.GangReserver.ReservePlanned("p", "n"); ended {
				t.Fatal("the plan has ended by itself")
			}
			for _, step := range tc.steps {
				step(t, r, p, q)
			}
			if tc.wantBefore != nil {
				if diff := cmp.Diff(tc.wantBefore, r.phases()); diff != "" {
					t.Errorf("phases before the next cycle (-want +got):\n%s", diff)
				}
			}
			var pods []*v1.Pod
			if bound := r.listers.pods.pod("default", "q", "q"); bound.Spec.NodeName != "" {
				pods = append(pods, bound)
			}
			l = schedcache.NewSnapshot(pods, nodes).NodeInfos()
			r.Allocations.Sweep(l)
			if diff := cmp.Diff(tc.want, r.phases()); diff != "" {
				t.Errorf("phases (-want +got):\n%s", diff)
			}
			checkMemos(t, r.State, l)
		})
	}
}

// TestPlanOnLostNode: a plan survives the loss of its node until it is ended.
func TestPlanOnLostNode(t *testing.T) {
	r := newTestEnv(t, "dgx1-v100")
	p := schedtest.Pod("p").GPUs(2).Obj()
	_, l := r.view(t)
	r.mustPlan(t, l, member(t, p, "n", 0, 1))
	r.Graphs.Remove("n", "topology-n")
	empty := schedcache.NewSnapshot(nil, nil).NodeInfos()
	r.Allocations.Sweep(empty)
	if diff := cmp.Diff(map[string]string{"p": "planned"}, r.phases()); diff != "" {
		t.Errorf("phases (-want +got):\n%s", diff)
	}
	r.GangReserver.EndPlanned("p")
	if left := r.Allocations.Dump(); len(left) != 0 {
		t.Errorf("left after the plan has ended: %+v", left)
	}
}

func TestConsecutiveAttempts(t *testing.T) {
	r := newTestEnv(t, "dgx1-v100")
	p, q := schedtest.Pod("p").GPUs(2).Obj(), schedtest.Pod("q").GPUs(2).Obj()
	_, l := r.view(t)
	r.mustPlan(t, l, member(t, p, "n", 0, 1), member(t, q, "n", 2, 3))
	r.GangReserver.ReservePlanned("p", "n") // p waits at Permit
	second := []GangMember{member(t, q, "n", 0, 1), member(t, p, "n", 2, 3)}
	if failed, reason := r.GangReserver.ReserveGang(second, l, nil, nil); failed != 0 || reason != placement.AttemptGoesOn {
		t.Errorf("a second plan beside the first: %d, %s", failed, reason)
	}
	r.GangReserver.EndPlanned("p", "q")
	if failed, reason := r.GangReserver.ReserveGang(second, l, nil, nil); failed != 1 || reason != placement.AttemptGoesOn {
		t.Errorf("a second plan while p is still reserved: %d, %s", failed, reason)
	}
	r.Allocations.Forget("p", "n") // its wait was ended
	r.mustPlan(t, l, second...)
	if diff := cmp.Diff(map[string]string{"p": "planned", "q": "planned"}, r.phases()); diff != "" {
		t.Errorf("phases (-want +got):\n%s", diff)
	}
}

// TestPlanBesideDoubt: a pod may be planned elsewhere while it is unknown whether it was bound, as it may
// be reserved elsewhere: both allocations are used until the outcome is decided.
func TestPlanBesideDoubt(t *testing.T) {
	r := newTestEnv(t, "dgx1-v100")
	m := addNode(t, r.State, "m", "dgx1-v100")
	p := schedtest.Pod("p").GPUs(8).Obj()
	first := r.attempt(t, p)
	l := schedcache.NewSnapshot(nil, []*v1.Node{r.node, m}).NodeInfos()
	if node, gpus := r.GangReserver.TakesAgain(demandOf(t, p), l); node != "n" || gpus != nvtopo.FullMask(8) {
		t.Errorf("p may take its choice again on %q, %v; want n, all", node, gpus)
	}
	if failed, reason := r.GangReserver.ReserveGang([]GangMember{member(t, p, "n", 0, 1, 2, 3, 4, 5, 6, 7)}, l, nil, nil); failed != 0 || reason != placement.FewGPUs {
		t.Errorf("p is planned with what it has in doubt: %d, %s", failed, reason)
	}
	r.mustPlan(t, l, member(t, p, "m", 0, 1, 2, 3, 4, 5, 6, 7))
	for _, node := range []string{"n", "m"} {
		info, err := l.Get(node)
		if err != nil {
			t.Fatal(err)
		}
		if r.Nodes.Judge(demandOf(t, schedtest.Pod("other").GPUs(1).Obj()), info, l).Reason == placement.Fits {
			t.Errorf("another pod fits on node %s, which p may have", node)
		}
	}
	text, err := first.Encode()
	if err != nil {
		t.Fatal(err)
	}
	// The first attempt was carried out late.
	bound := schedtest.PodFrom(p).Node("n").Annotation("nvtopo.dev/allocation", text).ResourceVersion("9").Obj()
	r.handlers.podEvent(p, bound)
	want := map[string]string{"n": "confirmed", "m": "void"}
	got := map[string]string{}
	for _, c := range r.Allocations.Dump() {
		got[c.Node] = c.Phase
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("phases by node (-want +got):\n%s", diff)
	}
}

// TestPlanJudgement: a plan is judged until its pod's cycle.
func TestPlanJudgement(t *testing.T) {
	broken := func(gpu int) func(t *testing.T, r *testEnv) {
		return func(t *testing.T, r *testEnv) {
			t.Helper()
			obj := topologyOf(t, "n", "dgx1-v100")
			obj.ResourceVersion = "2"
			id := r.Nodes.Node("n").Accels[0].Graph.GPUs[gpu].UUID
			for i := range obj.Status.GPUHealth {
				if obj.Status.GPUHealth[i].ID == id {
					obj.Status.GPUHealth[i].Healthy = false
				}
			}
			if _, err := r.Graphs.Apply(obj); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, tc := range map[string]struct {
		change func(t *testing.T, r *testEnv)
		want   placement.Reason
		wantOK bool
		gpus   []int
	}{
		"nothing changed":       {func(*testing.T, *testEnv) {}, placement.Fits, true, []int{0, 1}},
		"a GPU of it is broken": {broken(1), placement.PlanBroken, true, []int{0, 1}},
		"another GPU is broken": {broken(2), placement.Fits, true, []int{0, 1}},
		"the plan has ended":    {func(_ *testing.T, r *testEnv) { r.GangReserver.EndPlanned("p") }, placement.PlanEnded, true, []int{0, 1}},
		"the graph is gone":     {func(_ *testing.T, r *testEnv) { r.Graphs.Remove("n", "topology-n") }, placement.NoGraph, true, []int{0, 1}},
		"the exporter is silent": {
			func(_ *testing.T, r *testEnv) { r.clock.now = r.clock.now.Add(3 * 365 * 24 * time.Hour) },
			placement.StaleGraph, true,
			[]int{0, 1},
		},
		"it has no GPUs": {func(*testing.T, *testEnv) {}, placement.Fits, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := newTestEnv(t, "dgx1-v100")
			p := schedtest.Pod("p").GPUs(len(tc.gpus)).Obj()
			info, l := r.view(t)
			r.mustPlan(t, l, member(t, p, "n", tc.gpus...))
			tc.change(t, r)
			if reason, ok := r.GangReserver.JudgePlanned(demandOf(t, p), info); reason != tc.want || ok != tc.wantOK {
				t.Errorf("got %q, %t; want %q, %t", reason, ok, tc.want, tc.wantOK)
			}
		})
	}
}

// TestGangNomination: the nominated places of a gang are its own.
func TestGangNomination(t *testing.T) {
	for name, tc := range map[string]struct {
		gang []string
		want int
	}{
		"the pod that it is kept for is a member":   {[]string{"preemptor", "sibling"}, -1},
		"the pod that it is kept for is a stranger": {[]string{"other", "sibling"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			r, pods, _ := heldEnv(t)
			_, l := r.view(t, pods...)
			members := []GangMember{
				member(t, schedtest.Pod(tc.gang[0]).GPUs(1).Priority(5).Obj(), "n", 3),
				member(t, schedtest.Pod(tc.gang[1]).GPUs(2).Priority(5).Obj(), "n", 0, 1), // some of those kept for the preemptor
			}
			if failed, reason := r.GangReserver.ReserveGang(members, l, nil, nil); failed != tc.want {
				t.Errorf("failed %d, %s; want %d", failed, reason, tc.want)
			}
		})
	}
}

// TestMemberCPUs: planned gang members with exclusive CPUs get others than their siblings.
func TestMemberCPUs(t *testing.T) {
	r := newTestEnv(t, "dgx1-v100")
	_, l := r.view(t)
	var members []GangMember
	for i := range 4 {
		pod := schedtest.Pod(fmt.Sprint("p-", i)).GPUs(2).Request(v1.ResourceCPU, "8").Obj()
		members = append(members, member(t, pod, "n", 2*i, 2*i+1))
	}
	r.mustPlan(t, l, members...)
	seen := map[int]types.UID{}
	for _, listed := range r.Allocations.reservations.List() {
		if len(listed.Allocation.CPUs()) != 8 {
			t.Fatalf("pod %s has CPUs %v, want 8", listed.UID, listed.Allocation.CPUs())
		}
		for _, cpu := range listed.Allocation.CPUs() {
			if other, ok := seen[cpu]; ok {
				t.Errorf("CPU %d is of pods %s and %s", cpu, other, listed.UID)
			}
			seen[cpu] = listed.UID
		}
	}
}

// TestPlanEndNotice: a waiting pod is woken when a plan ends.
func TestPlanEndNotice(t *testing.T) {
	r := newTestEnv(t, "dgx1-v100")
	_, l := r.view(t)
	freed := 0
	r.Changes.onFreed = func() { freed++ }
	r.mustPlan(t, l, member(t, schedtest.Pod("p").GPUs(2).Obj(), "n", 0, 1))
	if r.GangReserver.EndPlanned("p", "q"); freed != 1 {
		t.Errorf("devices came free %d times, want once", freed)
	}
	if r.GangReserver.EndPlanned("p"); freed != 1 {
		t.Error("a plan that has ended ends again")
	}
}
