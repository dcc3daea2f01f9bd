// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	"k8s.io/kubernetes/pkg/scheduler/framework/preemption"

	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/placement/eviction"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// known puts the waiting pods and budgets into the informer's store, as they are by the time a pod is
// scheduled.
func (e *testEnv) known(pods []*v1.Pod, pdbs ...*policyv1.PodDisruptionBudget) {
	e.tb.Helper()
	for _, pod := range pods {
		if err := e.factory.Core().V1().Pods().Informer().GetStore().Add(pod); err != nil {
			e.tb.Fatal(err)
		}
	}
	for _, pdb := range pdbs {
		if err := e.factory.Policy().V1().PodDisruptionBudgets().Informer().GetStore().Add(pdb); err != nil {
			e.tb.Fatal(err)
		}
	}
}

// postFilter runs a cycle in which no node passes Filter, and then PostFilter.
// evicted are the pods that would have been deleted.
func (e *testEnv) postFilter(pod *v1.Pod) (result *fwk.PostFilterResult, evicted []string, status *fwk.Status) {
	e.tb.Helper()
	state := e.cycle(pod)
	nodes, err := e.snapshot.NodeInfos().List()
	if err != nil {
		e.tb.Fatal(err)
	}
	m := framework.NewDefaultNodeToStatus()
	for _, info := range nodes {
		status := e.fw.RunFilterPluginsWithNominatedPods(e.ctx, state, pod, info)
		if status.IsSuccess() {
			e.tb.Fatalf("pod %s fits node %s", pod.Name, info.Node().Name)
		}
		m.Set(info.Node().Name, status)
	}
	gone := make(chan string, 100)
	e.plugin.preemptor.evictOne = func(_ context.Context, _ preemption.Candidate, _, victim *v1.Pod, _ string) error {
		gone <- victim.Name
		return nil
	}
	result, status = e.plugin.PostFilter(e.ctx, state, pod, m)
	testkit.Soon(e.tb, "the victims are evicted", func() bool { return !e.plugin.preemptor.evaluator.IsPodRunningPreemption(pod.UID) })
	close(gone)
	for name := range gone {
		evicted = append(evicted, name)
	}
	slices.Sort(evicted)
	return result, evicted, status
}

func TestPostFilter(t *testing.T) {
	never := linkedPair("p", 5).PreemptionPolicy(v1.PreemptNever).Obj()
	claimant := linkedPair("p", 0).PodResourceClaims(v1.PodResourceClaim{Name: "c"}).Obj()
	plain := asks("p", 5, 0).CPU("64").Obj()
	member := linkedPair("p", 5).Annotation(gangrequest.GangKey, "g").Obj()
	full := func(priority int32) func(s *testEnv) {
		return func(s *testEnv) {
			s.tenant("a", 0, priority, 2, 0, 1)
			s.tenant("b", 0, priority+1, 2, 2, 3)
		}
	}
	tests := map[string]struct {
		arrange  func(s *testEnv)
		pod      *v1.Pod
		alone    bool // no DefaultPreemption in the profile
		gangs    bool // another plugin places gangs
		want     fwk.Code
		wantNode string
		evicted  []string
		says     string
	}{
		"the cheapest pair goes": {arrange: full(0), pod: linkedPair("p", 5).Obj(), wantNode: "node-0", evicted: []string{"a"}},
		"who may not preempt does not, and the default is not asked": {
			arrange: full(0), pod: never, want: fwk.UnschedulableAndUnresolvable, says: "preemptionPolicy=Never",
		},
		"nobody matters less, and the default is not asked": {
			arrange: full(5), pod: linkedPair("p", 5).Obj(), want: fwk.UnschedulableAndUnresolvable, says: "preemption: 0/1 nodes",
		},
		"other plugins have their turn for a pod with claims": {arrange: full(5), pod: claimant, want: fwk.Unschedulable},
		"a pod without GPUs is the default's":                 {arrange: full(0), pod: plain, want: fwk.Unschedulable},
		"a pod of a gang is another plugin's":                 {arrange: full(0), pod: member, gangs: true, want: fwk.Unschedulable},
		"a pod of a gang that nobody places as a whole":       {arrange: full(0), pod: member, wantNode: "node-0", evicted: []string{"a"}},
		"a profile without the default preemption wants none": {
			arrange: full(0), pod: linkedPair("p", 5).Obj(), alone: true,
			want: fwk.Unschedulable,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			others := []string{defaultpreemption.Name}
			if tc.alone {
				others = nil
			}
			s := newTestEnvWith(t, others, "a100-pcie-4-bridged")
			s.plugin.Profile.Gangs = tc.gangs
			tc.arrange(s)
			s.show()
			s.known([]*v1.Pod{tc.pod})
			result, evicted, status := s.postFilter(tc.pod)
			node := ""
			if result != nil && result.NominatingInfo != nil {
				node = result.NominatedNodeName
			}
			if status.Code() != tc.want || node != tc.wantNode || !slices.Equal(evicted, tc.evicted) || !strings.Contains(status.Message(), tc.says) {
				t.Errorf("%v %q, node %q, evicted %v; want %v, %q, node %q, %v",
					status.Code(), status.Message(), node, evicted, tc.want, tc.says, tc.wantNode, tc.evicted)
			}
			if held := len(s.state.Nominator.NominatedReservations()) > 0; held != (tc.wantNode != "") {
				t.Errorf("something is held: %t, want it for a nominated pod", held)
			}
		})
	}
}

// TestNodeComparison: nodes are compared like sets. Each pair of nodes differs in one thing: the order of
// the comparison decides.
func TestNodeComparison(t *testing.T) {
	old, young := metav1.Unix(1_700_000_000, 0), metav1.Unix(1_700_009_000, 0)
	type tenant struct {
		priority int32
		gpus     []int
		guarded  bool
		since    *metav1.Time
	}
	tests := map[string]struct {
		nodes [2][]tenant // the second one wins
	}{
		"no budget is violated while another node will do": {[2][]tenant{
			{{0, []int{0, 1, 2, 3}, true, &old}}, {{4, []int{0, 1}, false, &old}, {4, []int{2, 3}, false, &old}},
		}},
		"the most important victim matters less": {[2][]tenant{
			{{2, []int{0, 1, 2, 3}, false, &young}}, {{1, []int{0, 1}, false, &old}, {1, []int{2}, false, &old}, {1, []int{3}, false, &old}},
		}},
		"fewer victims": {[2][]tenant{
			{{1, []int{0}, false, &young}, {1, []int{1}, false, &young}, {2, []int{2, 3}, false, &young}}, {{1, []int{0, 1, 2, 3}, false, &old}},
		}},
		"they started later": {[2][]tenant{
			{{1, []int{0, 1, 2, 3}, false, &old}}, {{1, []int{0, 1, 2, 3}, false, &young}},
		}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			for _, swap := range []int{0, 1} {
				s := newTestEnv(t, "a100-pcie-4-bridged", "a100-pcie-4-bridged")
				for i, tenants := range tc.nodes {
					for j, x := range tenants {
						pod := s.tenant(fmt.Sprintf("pod-%d-%d", i, j), i^swap, x.priority, len(x.gpus), x.gpus...)
						pod.Status.StartTime = x.since
						if x.guarded {
							pod.Labels["team"] = "guarded"
						}
					}
				}
				s.show()
				pod := linkedPair("p", 5).Obj()
				s.known([]*v1.Pod{pod}, budget("guarded", 0))
				result, evicted, status := s.postFilter(pod)
				if want := s.nodes[1^swap].Name; !status.IsSuccess() || result.NominatedNodeName != want {
					t.Errorf("%v, node %v, evicted %v; want node %s", status, result, evicted, want)
				}
			}
		})
	}
}

// TestSecondPreemptor: a second preemptor takes others. One pod is nominated, whose victims have not ended
// yet, and an equal one preempts.
func TestSecondPreemptor(t *testing.T) {
	s := newTestEnv(t, "a6000-8-bridged")
	s.tenant("big", 0, 1, 4, 0, 1, 2, 3)
	for i := 4; i < 8; i++ {
		s.tenant(fmt.Sprintf("small-%d", i), 0, 2, 1, i)
	}
	s.show()
	var pods []*v1.Pod
	for i := range 3 {
		pods = append(pods, linkedPair(fmt.Sprintf("p%d", i), 5).Obj())
	}
	s.known(pods)
	// The first one's victim has room for the second, which waits for it; the third needs
	// others.
	for i, want := range [][]string{{"big"}, nil, {"small-4", "small-5"}} {
		result, evicted, status := s.postFilter(pods[i])
		if !status.IsSuccess() {
			t.Fatal(status)
		}
		if i < 2 && !slices.Equal(evicted, want) || i == 2 && len(evicted) != 2 {
			t.Errorf("pod %d evicts %v, want %v", i, evicted, want)
		}
		pi, err := framework.NewPodInfo(pods[i])
		if err != nil {
			t.Fatal(err)
		}
		s.queue.Add(klog.Background(), pods[i])
		s.queue.AddNominatedPod(klog.Background(), pi, result.NominatingInfo)
	}
	var all []string
	for _, h := range s.state.Nominator.NominatedReservations() {
		all = append(all, h.GPUs...)
	}
	slices.Sort(all)
	if n := len(slices.Compact(all)); n != 6 {
		t.Errorf("%d distinct GPUs are held for three pods, want 6", n)
	}
}

// TestForeignVictimCost: another preemptor's victim costs nothing. One victim, which the API server does
// not show as ending yet, makes room for two preemptors, and one of a lower priority is on another node.
func TestForeignVictimCost(t *testing.T) {
	s := newTestEnv(t, "a100-pcie-4-bridged", "a100-pcie-4-bridged")
	s.tenant("whole", 0, 50, 4, 0, 1, 2, 3)
	other := s.tenant("other", 1, 200, 4, 0, 1, 2, 3) // no pod's victim at first
	s.show()
	pods := []*v1.Pod{asks("first", 100, 2).Obj(), asks("second", 60, 2).Obj()}
	s.known(pods)
	for _, pod := range pods {
		result, evicted, status := s.postFilter(pod)
		var want []string
		if pod.Name == "first" {
			want = []string{"whole"}
		}
		if !status.IsSuccess() || result.NominatedNodeName != "node-0" || !slices.Equal(evicted, want) {
			t.Errorf("pod %s evicts %v (%v), want %v: whole goes anyway", pod.Name, evicted, status, want)
			return
		}
		pi, err := framework.NewPodInfo(pod)
		if err != nil {
			t.Fatal(err)
		}
		s.queue.Add(klog.Background(), pod)
		s.queue.AddNominatedPod(klog.Background(), pi, result.NominatingInfo)
		*other.Spec.Priority = 10
		s.show()
	}
}

// TestRetryBeforeVictimNews: a retry before the informer shows the last eviction evicts no other pod. A
// preemptor is tried again before the scheduler sees that its victim is ending, and that it itself is
// nominated.
func TestRetryBeforeVictimNews(t *testing.T) {
	const nodes = 8
	s := newTestEnv(t, slices.Repeat([]string{"a100-pcie-4-bridged"}, nodes)...)
	for i := range nodes {
		s.tenant(fmt.Sprintf("low-%d", i), i, 0, 4, 0, 1, 2, 3)
	}
	s.show()
	pod := asks("p", 5, 2).Obj()
	s.known([]*v1.Pod{pod})
	var first []string
	for try := range 5 {
		result, evicted, status := s.postFilter(pod)
		if !status.IsSuccess() {
			t.Fatal(status)
		}
		if try == 0 {
			first = evicted
		}
		if len(evicted) != 1 || !slices.Equal(evicted, first) {
			t.Errorf("try %d evicts %v, after %v", try, evicted, first)
		}
		pi, err := framework.NewPodInfo(pod)
		if err != nil {
			t.Fatal(err)
		}
		s.queue.Add(klog.Background(), pod)
		s.queue.AddNominatedPod(klog.Background(), pi, result.NominatingInfo)
	}
}

// TestVictimNewsInParts: if the evictions become visible one by one, a retry evicts no pod that the first
// attempt did not choose. Of eight pods with equal GPUs one started later than all others: alone it would
// be the cheapest victim, but two are needed, and the first two will do as well as any with it. It is on
// the NUMA node of these, as otherwise it would be dearer.
func TestVictimNewsInParts(t *testing.T) {
	const going, gone = 1, 2
	const later = 3
	news := []string{"nothing", "that it ends", "its end"}
	start := metav1.Unix(1_700_000_000, 0)
	for first := range news {
		for second := range news {
			if first == gone && second == gone {
				continue // it fits
			}
			t.Run(fmt.Sprintf("of one %s is known and of the other one %s", news[first], news[second]), func(t *testing.T) {
				s := newTestEnv(t, "dgx-h100")
				for g := range 8 {
					since := start
					if g == later {
						since = metav1.NewTime(start.Add(time.Second))
					}
					s.tenant(fmt.Sprintf("pod-%d", g), 0, 0, 1, g).Status.StartTime = &since
				}
				s.show()
				pod := asks("p", 5, 2).Obj()
				s.known([]*v1.Pod{pod})
				result, victims, status := s.postFilter(pod)
				if !status.IsSuccess() || !slices.Equal(victims, []string{"pod-0", "pod-1"}) {
					t.Fatalf("%v, evicted %v; want the first two", status, victims)
				}
				pi, err := framework.NewPodInfo(pod)
				if err != nil {
					t.Fatal(err)
				}
				s.queue.Add(klog.Background(), pod)
				s.queue.AddNominatedPod(klog.Background(), pi, result.NominatingInfo)
				for i, what := range []int{first, second} {
					at := slices.IndexFunc(s.pods, func(p *v1.Pod) bool { return p.Name == victims[i] })
					switch what {
					case going:
						s.pods[at].DeletionTimestamp = &metav1.Time{Time: time.Now().Add(20 * time.Second)}
					case gone:
						s.pods = slices.Delete(s.pods, at, at+1)
					}
				}
				s.show()
				_, again, status := s.postFilter(pod)
				for _, name := range again {
					if !slices.Contains(victims, name) {
						t.Errorf("%s is evicted, too, after %v: %v", name, victims, status)
					}
				}
			})
		}
	}
}

// TestComingFreeDevices has kubelet's record lag behind the pods: no pod is evicted for devices that
// become free in a moment, and one is if they do not.
func TestComingFreeDevices(t *testing.T) {
	for name, tc := range map[string]struct {
		known bool // it was seen to go
		want  []string
	}{
		"of a pod that has just gone":                  {known: true},
		"of one that nobody saw go may never be freed": {want: []string{"low"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestEnv(t, "a100-pcie-4-bridged")
			s.tenant("low", 0, 0, 2, 2, 3)
			s.show()
			_, obj := nodeOf(t, "node-0", "a100-pcie-4-bridged")
			obj.ResourceVersion = "2"
			obj.Status.Allocations = []v1alpha1.Allocation{{
				PodUID: "gone", Container: "main", Resource: v1alpha1.DefaultResource, State: "confirmed",
				GPUs: []string{obj.Spec.GPUs[0].ID, obj.Spec.GPUs[1].ID},
			}}
			if _, err := s.state.Graphs.Apply(obj); err != nil {
				t.Fatal(err)
			}
			if tc.known {
				s.goes("gone")
			}
			pod := linkedPair("p", 5).Obj()
			s.known([]*v1.Pod{pod})
			_, evicted, status := s.postFilter(pod)
			if !slices.Equal(evicted, tc.want) || tc.known && !strings.HasPrefix(status.Message(), ErrReasonReleasing) {
				t.Errorf("evicted %v, %v; want %v", evicted, status, tc.want)
			}
		})
	}
}

// TestStuckVictims: a pod whose victims are stuck looks for others.
func TestStuckVictims(t *testing.T) {
	for name, tc := range map[string]struct {
		end  time.Duration
		want []string
		code fwk.Code
	}{
		"they are going":               {end: 20 * time.Second, code: fwk.UnschedulableAndUnresolvable},
		"they should have gone by now": {end: -time.Minute, want: []string{"other"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestEnv(t, "a100-pcie-4-bridged")
			victim := s.tenant("victim", 0, 0, 2, 0, 1)
			victim.DeletionTimestamp = &metav1.Time{Time: time.Now().Add(tc.end)}
			victim.Status.Conditions = []v1.PodCondition{{
				Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: v1.PodReasonPreemptionByScheduler,
			}}
			s.tenant("other", 0, 1, 2, 2, 3)
			s.show()
			pod := linkedPair("p", 5).NominatedNodeName("node-0").Obj()
			s.known([]*v1.Pod{pod})
			_, evicted, status := s.postFilter(pod)
			if status.Code() != tc.code || !slices.Equal(evicted, tc.want) {
				t.Errorf("%v, evicted %v; want %v, %v", status, evicted, tc.code, tc.want)
			}
		})
	}
}

// BenchmarkPreemption is one preemption for eight linked GPUs on nodes of 16 that are
// full of pods with one each.
func BenchmarkPreemption(b *testing.B) {
	for _, nodes := range []int{1, 1000} {
		b.Run(fmt.Sprintf("%d nodes", nodes), func(b *testing.B) {
			s := newTestEnv(b, slices.Repeat([]string{"dgx2"}, nodes)...)
			start := metav1.Unix(1_700_000_000, 0)
			for n := range nodes {
				for g := range 16 {
					pod := s.tenant(fmt.Sprintf("pod-%d-%d", n, g), n, int32(g%3), 1, g)
					pod.Status.StartTime = &metav1.Time{Time: start.Add(time.Duration(n*g*7919%1000) * time.Second)}
				}
			}
			s.show()
			pod := asks("p", 5, 8).Annotation(podrequest.MinLinkKey, "NVLINK").Obj()
			s.known(append(s.pods, pod)) // also so that allocations are read once
			s.postFilter(pod)
			b.ReportAllocs()
			for b.Loop() {
				if _, _, status := s.postFilter(pod); !status.IsSuccess() {
					b.Fatal(status)
				}
			}
		})
	}
}

// TestShortfalls: machines are compared by the speed of their rings, not by the quality of a ring relative
// to the best of its own machine.
func TestShortfalls(t *testing.T) {
	of := func(rings map[string]int64) map[string]eviction.Cost {
		out := map[string]eviction.Cost{}
		for n, ring := range rings {
			out[n] = eviction.Cost{Quality: eviction.Quality{Ring: ring}}
		}
		return out
	}
	cases := map[string]struct{ rings, want map[string]int64 }{
		"half of a fast machine's best beats all of a slow one's": {map[string]int64{"fast": 225, "slow": 24}, map[string]int64{"slow": 201}},
		"within the tolerance they are equal":                     {map[string]int64{"a": 110, "b": 100}, map[string]int64{}},
		"beyond it they are not":                                  {map[string]int64{"a": 111, "b": 100}, map[string]int64{"b": 11}},
		"single GPUs have no ring":                                {map[string]int64{"a": 0, "b": 0}, map[string]int64{}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if d := cmp.Diff(tc.want, shortfalls(of(tc.rings), 0.1)); d != "" {
				t.Errorf("(-want, +got):\n%s", d)
			}
		})
	}
}
