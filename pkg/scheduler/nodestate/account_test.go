// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	schedcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/reservations"
)

// TestGonePodRecords: records of pods that are gone are used while the agent lives.
func TestGonePodRecords(t *testing.T) {
	r := newTestEnv(t, "dgx1-v100")
	r.record(t, "gone", 4, 5)
	info, l := r.view(t)
	used := func() []int {
		return r.Nodes.View(&placement.Demand{Request: &podrequest.Request{}}, info, l).Used[0].Positions()
	}
	if got := used(); !slices.Equal(got, []int{4, 5}) {
		t.Errorf("used %v while the agent lives, want 4 and 5", got)
	}
	r.clock.now = r.clock.now.Add(366 * 24 * time.Hour)
	r.PodDevices.leases.Set(lease(nodelease.ExporterPrefix+"n", r.clock.now, time.Hour), r.clock.now)
	if got := used(); len(got) != 0 {
		t.Errorf("used %v of a pod that is gone, by an agent that is gone as well", got)
	}
	r.PodDevices.leases.Set(lease(nodelease.AgentPrefix+"n", r.clock.now, time.Hour), r.clock.now)
	if got := used(); !slices.Equal(got, []int{4, 5}) {
		t.Errorf("used %v when the agent is back, want 4 and 5", got)
	}
	live := on(t, r.State, schedtest.Pod("gone").GPUs(2).Obj(), "n", 4, 5)
	live.UID = "gone"
	r.PodDevices.leases.Drop(nodelease.AgentPrefix + "n")
	info, l = r.view(t, live)
	if got := used(); !slices.Equal(got, []int{4, 5}) {
		t.Errorf("used %v by a live pod, want what kubelet recorded whether the agent lives or not", got)
	}
}

// TestForeignPodUsage: a foreign pod uses devices that kubelet has not recorded yet.
func TestForeignPodUsage(t *testing.T) {
	r := newTestEnv(t, "dgx1-v100")
	pod := on(t, r.State, schedtest.Pod("foreign").GPUs(3).Obj(), "n")
	r.record(t, pod.UID, 6, 7)
	info, l := r.view(t, pod)
	u := r.Nodes.View(&placement.Demand{Request: &podrequest.Request{}}, info, l)
	if got := u.Used[0].Positions(); !slices.Equal(got, []int{6, 7}) || u.Counted[0] != 1 || !u.Foreign[0] {
		t.Errorf("used %v, %d counted, foreign %t; want 6 and 7 and one more", got, u.Counted[0], u.Foreign[0])
	}
}

// TestSharedCPUSet: a CPU set wider than the request is shared.
func TestSharedCPUSet(t *testing.T) {
	r := newTestEnv(t, "dgx1-v100")
	holder := on(t, r.State, schedtest.Pod("holder").GPUs(1).Request("cpu", "4").Obj(), "n", 0)
	a, err := allocation.Parse(holder.Annotations[allocation.Key])
	if err != nil {
		t.Fatal(err)
	}
	a.NUMANodes, a.CPUSet = []int{0}, "0-19,40-59" // the agent's pinning: the whole node
	if holder.Annotations[allocation.Key], err = a.Encode(); err != nil {
		t.Fatal(err)
	}
	info, l := r.view(t, holder)
	u := r.Nodes.View(&placement.Demand{Request: &podrequest.Request{}}, info, l)
	if got := u.NUMA[0].MilliCPU; got != 36_000 {
		t.Errorf("node 0 has %d mCPU left, want 36000: 4 of 40 CPUs are asked for", got)
	}
	if len(u.Taken) > 0 {
		t.Errorf("CPUs %v count as taken, want none", u.Taken)
	}
}

// TestNUMANodeAccount: the free CPUs of NUMA nodes are those of kubelet's account.
func TestNUMANodeAccount(t *testing.T) {
	running := on(t, newTestEnv(t, "dgx1-v100").State, schedtest.Pod("running").CPU("10").Memory("1Gi").Obj(), "n")
	running.Status.StartTime = &metav1.Time{Time: time.Unix(1_700_000_000, 0)}
	coming := schedtest.Pod("coming").CPU("6").Memory("1Gi").Node("n").Obj()
	tests := map[string]struct {
		exclusive string
		pods      []*v1.Pod
		problem   string
		want      []int64 // CPUs by node; 40 each, of which node 0 has 2 reserved
	}{
		"nothing runs": {want: []int64{38, 40}},
		"exclusive CPUs are where the account says":   {exclusive: "20-29", pods: []*v1.Pod{running}, want: []int64{38, 30}},
		"kubelet will put a pod on the lowest node":   {exclusive: "20-29", pods: []*v1.Pod{running, coming}, want: []int64{32, 30}},
		"an account without a running pod is too old": {pods: []*v1.Pod{running}, want: []int64{28, 40}},
		"an account that cannot be read":              {problem: "CPU manager state: unknown field", pods: []*v1.Pod{running, coming}, want: []int64{22, 24}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := newTestEnv(t, "dgx1-v100")
			r.tell(t, func(s *v1alpha1.NodeGPUTopologyStatus) {
				s.Kubelet = &v1alpha1.Kubelet{
					TopologyManagerPolicy: "single-numa-node", CPUManagerPolicy: "static", ReservedCPUs: "0,40", ExclusiveCPUs: tc.exclusive,
					ExclusiveCPUsProblem: tc.problem,
				}
			})
			info, l := r.view(t, tc.pods...)
			u := r.Nodes.View(&placement.Demand{Request: &podrequest.Request{}}, info, l)
			var got []int64
			for i := range u.NUMA {
				got = append(got, u.NUMA[i].MilliCPU/1000)
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("CPUs left by NUMA node (-want +got):\n%s", d)
			}
		})
	}
}

// TestFreedDevicesWake: only devices that were freed wake pods.
func TestFreedDevicesWake(t *testing.T) {
	two := v1alpha1.Allocation{PodUID: "a", Container: "main", Resource: testResource, GPUs: newTestEnv(t, "dgx1-v100").uuids(0, 1), State: "confirmed"}
	one := two
	one.GPUs = two.GPUs[:1]
	foreign := two
	foreign.State = "foreign"
	single := &v1alpha1.Kubelet{TopologyManagerPolicy: "single-numa-node", CPUManagerPolicy: "static", ReservedCPUs: "0", ExclusiveCPUs: "1-4"}
	fewer, other := *single, *single
	fewer.ExclusiveCPUs = "1-2"
	other.TopologyManagerPolicy = "restricted"
	type status = v1alpha1.NodeGPUTopologyStatus
	broken := []v1alpha1.GPUHealth{{ID: topologyOf(t, "n", "dgx1-v100").Spec.GPUs[0].ID}}
	tests := map[string]struct {
		before, after status
		want          bool
	}{
		"one more pod is recorded":         {after: status{Allocations: []v1alpha1.Allocation{two}}},
		"a foreign pod's GPUs are known":   {after: status{Allocations: []v1alpha1.Allocation{foreign}}, want: true},
		"a pod's record is gone":           {before: status{Allocations: []v1alpha1.Allocation{two}}, want: true},
		"a pod has one GPU less":           {before: status{Allocations: []v1alpha1.Allocation{two}}, after: status{Allocations: []v1alpha1.Allocation{one}}, want: true},
		"nothing changes":                  {before: status{Allocations: []v1alpha1.Allocation{two}}, after: status{Allocations: []v1alpha1.Allocation{two}}},
		"a GPU breaks":                     {after: status{GPUHealth: broken}},
		"a GPU is well again":              {before: status{GPUHealth: broken}, want: true},
		"CPUs are given out":               {before: status{Kubelet: &fewer}, after: status{Kubelet: single}},
		"CPUs come back":                   {before: status{Kubelet: single}, after: status{Kubelet: &fewer}, want: true},
		"kubelet decides in another way":   {before: status{Kubelet: single}, after: status{Kubelet: &other}, want: true},
		"it is known how kubelet decides":  {after: status{Kubelet: single}, want: true},
		"nobody says any more how it does": {before: status{Kubelet: single}, want: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := newTestEnv(t, "dgx1-v100")
			r.tell(t, func(s *status) { *s = tc.before })
			woken := false
			r.Changes.onFreed = func() { woken = true }
			obj := topologyOf(t, "n", "dgx1-v100")
			obj.ResourceVersion, obj.Status = "9", tc.after
			r.Nodes.topologies.Handler(r.Changes.passOn(t.Context())).OnUpdate(nil, obj)
			if r.Nodes.Node("n").ResourceVersion != "9" {
				t.Fatal("the update was not stored")
			}
			if woken != tc.want {
				t.Errorf("woken %t, want %t", woken, tc.want)
			}
		})
	}
	t.Run("a bound pod's choice is corrected", func(t *testing.T) {
		r := newTestEnv(t, "dgx1-v100")
		woken := 0
		r.Changes.onFreed = func() { woken++ }
		before, after := on(t, r.State, schedtest.Pod("p").GPUs(2).Obj(), "n", 0, 1),
			on(t, r.State, schedtest.Pod("p").GPUs(2).Obj(), "n", 2, 3)
		r.handlers.podHandler().OnUpdate(before, before)
		if woken != 0 {
			t.Error("woken by nothing")
		}
		r.handlers.podHandler().OnUpdate(before, after)
		if woken != 1 {
			t.Errorf("woken %d times, want once", woken)
		}
	})
}

// TestDryRunExclusiveCPUs: a dry run frees the exclusive CPUs of the victims.
func TestDryRunExclusiveCPUs(t *testing.T) {
	r := newTestEnv(t, "dgx1-v100")
	victim := on(t, r.State, schedtest.Pod("victim").GPUs(4).CPU("30").Memory("1Gi").Obj(), "n", 0, 1, 2, 3)
	r.tell(t, func(s *v1alpha1.NodeGPUTopologyStatus) {
		s.Kubelet = &v1alpha1.Kubelet{
			TopologyManagerPolicy: "single-numa-node", CPUManagerPolicy: "static", ReservedCPUs: "0,40", ExclusiveCPUs: "1-15,41-55",
		}
		s.Allocations = []v1alpha1.Allocation{{
			PodUID: types.UID("victim"), Container: "main", Resource: testResource, CPUs: "1-15,41-55", State: "confirmed",
			GPUs: r.uuids(0, 1, 2, 3),
		}}
	})
	pod := schedtest.Pod("p").GPUs(4).CPU("36").Memory("1Gi").Obj()
	other := on(t, r.State, schedtest.Pod("other").GPUs(1).Obj(), "n", 4)
	info, l := r.view(t, victim, other)
	if v := r.Nodes.Judge(demandOf(t, pod), info, l); v.Reason == placement.Fits {
		t.Fatal("the pod fits beside the victim")
	}
	dry := info.Snapshot()
	if err := dry.RemovePod(klog.Background(), victim); err != nil {
		t.Fatal(err)
	}
	if v := r.Nodes.Judge(demandOf(t, pod), dry, l); v.Reason != placement.Fits {
		t.Errorf("without the victim: %q, want it to fit", v.Reason)
	}
}

// BenchmarkJudge compares filtering nodes whose kubelet aligns nothing with nodes whose admission is
// predicted.
func BenchmarkJudge(b *testing.B) {
	static := &v1alpha1.Kubelet{TopologyManagerPolicy: "restricted", CPUManagerPolicy: "static", ReservedCPUs: "0"}
	for name, bc := range map[string]struct {
		kubelet *v1alpha1.Kubelet
		pod     *v1.Pod
	}{
		"none":              {nil, schedtest.Pod("p").GPUs(2).Obj()},
		"restricted":        {&v1alpha1.Kubelet{TopologyManagerPolicy: "restricted"}, schedtest.Pod("p").GPUs(2).Obj()},
		"restricted static": {static, schedtest.Pod("p").GPUs(2).CPU("8").Memory("1Gi").Obj()},
	} {
		b.Run(name, func(b *testing.B) {
			clk := &tickClock{now: time.Unix(1_700_000_000, 0)}
			s := New(testConfig(), clk)
			s.listers.pods = fixedStore{}
			node := addNode(b, s, "n", "dgx1-v100")
			obj := topologyOf(b, "n", "dgx1-v100")
			obj.ResourceVersion, obj.Status.Kubelet = "2", bc.kubelet
			if _, err := s.Graphs.Apply(obj); err != nil {
				b.Fatal(err)
			}
			l := schedcache.NewSnapshot([]*v1.Pod{on(b, s, schedtest.Pod("holder").GPUs(1).Obj(), "n", 0)}, []*v1.Node{node}).NodeInfos()
			info, err := l.Get("n")
			if err != nil {
				b.Fatal(err)
			}
			d := demandOf(b, bc.pod)
			b.ReportAllocs()
			for b.Loop() {
				s.Nodes.Judge(d, info, l)
			}
		})
	}
}

// TestOrderedAdmission: a pod waits where it must not come first. Four GPUs for one pod are chosen
// on NUMA node 0. A pod of two would go to node 1, but if it came first kubelet would put it on
// node 0 and refuse the other.
func TestOrderedAdmission(t *testing.T) {
	r := newTestEnv(t, "dgx1-v100")
	single := &v1alpha1.Kubelet{TopologyManagerPolicy: "single-numa-node"}
	holder := on(t, r.State, schedtest.Pod("holder").GPUs(2).Obj(), "n", 4, 5)
	record := func(uid types.UID, gpus ...int) v1alpha1.Allocation {
		return v1alpha1.Allocation{PodUID: uid, Container: "main", Resource: testResource, GPUs: r.uuids(gpus...), State: "confirmed"}
	}
	r.tell(t, func(s *v1alpha1.NodeGPUTopologyStatus) {
		s.Kubelet, s.Allocations = single, []v1alpha1.Allocation{record("holder", 4, 5)}
	})
	info, l := r.view(t, holder)
	four, two := schedtest.Pod("four").GPUs(4).Obj(), schedtest.Pod("two").GPUs(2).Obj()
	if a, reason := r.Allocations.Assume(demandOf(t, four), four, info, l); reason != placement.Fits || !slices.Equal(r.positions(a)[0], []int{0, 1, 2, 3}) {
		t.Fatalf("four GPUs: %q, want those of node 0", reason)
	}
	if v := r.Nodes.Judge(demandOf(t, two), info, l); v.Reason != placement.KubeletBusy || v.Never {
		t.Errorf("two GPUs while kubelet has not admitted the four: %+v, want %q for now", v, placement.KubeletBusy)
	}
	// No pod need be evicted for the second that kubelet takes, unless it takes for ever.
	for _, step := range []struct {
		after time.Duration
		want  bool
	}{{0, true}, {reservations.ReleaseWithin - time.Second, true}, {2 * time.Second, false}, {time.Hour, true}} {
		r.clock.now = r.clock.now.Add(step.after)
		for _, prefix := range []string{nodelease.ExporterPrefix, nodelease.AgentPrefix} {
			r.PodDevices.leases.Set(lease(prefix+"n", r.clock.now, 2*time.Minute), r.clock.now)
		}
		if got := r.fitsAhead(demandOf(t, two), info, l); got != step.want {
			t.Errorf("%v later it fits soon: %t, want %t", step.after, got, step.want)
		}
	}
	woken := false
	r.Changes.onFreed = func() { woken = true }
	obj := topologyOf(t, "n", "dgx1-v100")
	obj.ResourceVersion, obj.Status.Kubelet = "9", single
	obj.Status.Allocations = []v1alpha1.Allocation{record("holder", 4, 5), record("four", 0, 1, 2, 3)}
	r.Nodes.topologies.Handler(r.Changes.passOn(t.Context())).OnUpdate(nil, obj)
	if !woken {
		t.Error("kubelet's record of the four does not wake the pod")
	}
	bound := on(t, r.State, four, "n", 0, 1, 2, 3)
	r.handlers.podEvent(nil, bound)
	info, l = r.view(t, holder, bound)
	r.Allocations.Sweep(l)
	if v := r.Nodes.Judge(demandOf(t, two), info, l); v.Reason != placement.Fits {
		t.Errorf("two GPUs once kubelet has: %q", v.Reason)
	}
}
