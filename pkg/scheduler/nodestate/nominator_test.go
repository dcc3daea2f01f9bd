// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/reservations"
)

// heldEnv is a machine with bridges between 0 and 1, 2 and 3, and so on. GPUs 2, 4 and 6 are used; 0 and
// 1 are kept for the pod "preemptor" of priority 5.
func heldEnv(t *testing.T) (*testEnv, []*v1.Pod, *v1.Pod) {
	t.Helper()
	r := newTestEnv(t, "a6000-8-bridged")
	var pods []*v1.Pod
	for i, name := range []types.UID{"a", "b", "c"} {
		pods = append(pods, on(t, r.State, schedtest.Pod(string(name)).GPUs(1).Obj(), "n", 2+2*i))
	}
	preemptor := schedtest.Pod("preemptor").GPUs(2).Priority(5).NominatedNodeName("n").Obj()
	r.nominate(t, preemptor)
	a, err := allocation.Parse(on(t, r.State, preemptor, "n", 0, 1).Annotations[allocation.Key])
	if err != nil {
		t.Fatal(err)
	}
	r.Nominator.ReserveNominated(preemptor.UID, a, reservations.WaitsFor{Victims: []types.UID{"victim"}, Awaited: []types.UID{"awaited"}, Until: r.clock.now.Add(time.Minute)})
	return r, pods, preemptor
}

// nominate makes the scheduling queue have pods nominated for the node.
func (e *testEnv) nominate(t *testing.T, pods ...*v1.Pod) {
	t.Helper()
	var infos []fwk.PodInfo
	for _, pod := range pods {
		pi, err := framework.NewPodInfo(pod)
		if err != nil {
			t.Fatal(err)
		}
		infos = append(infos, pi)
	}
	e.listers.nominated = func(string) []fwk.PodInfo { return infos }
}

// fitsAhead reports whether a pod fits once kubelet has done its pending work.
func (e *testEnv) fitsAhead(d *placement.Demand, info fwk.NodeInfo, l fwk.NodeInfoLister) bool {
	ahead := *d
	ahead.Ahead = true
	return e.Nodes.Judge(&ahead, info, l).Reason == placement.Fits
}

// TestNominatedHold: devices are kept for a nominated pod.
func TestNominatedHold(t *testing.T) {
	tests := map[string]struct {
		priority int32
		change   func(t *testing.T, r *testEnv, preemptor *v1.Pod)
		want     bool // the other pod gets the kept pair, the only one
	}{
		"is not given to a pod of less priority": {priority: 4},
		"nor to one of the same":                 {priority: 5},
		"is given to one that matters more":      {priority: 6, want: true},
		"is free when the nomination ends": {
			priority: 4, want: true,
			change: func(t *testing.T, r *testEnv, _ *v1.Pod) { t.Helper(); r.nominate(t) },
		},
		"is free when the time is over": {
			priority: 4, want: true,
			change: func(t *testing.T, r *testEnv, _ *v1.Pod) {
				t.Helper()
				r.clock.now = r.clock.now.Add(2 * time.Minute)
				_, l := r.view(t)
				r.Allocations.Sweep(l)
			},
		},
		"is free when the pod is gone": {
			priority: 4, want: true,
			change: func(_ *testing.T, r *testEnv, p *v1.Pod) { r.podDeleted(p.UID) },
		},
		"is free when the pod is bound, elsewhere": {
			priority: 4, want: true,
			change: func(_ *testing.T, r *testEnv, p *v1.Pod) {
				bound := p.DeepCopy()
				bound.Spec.NodeName = "other"
				r.handlers.podEvent(nil, bound)
			},
		},
		"moves with the pod": {
			priority: 4, want: true,
			change: func(t *testing.T, r *testEnv, p *v1.Pod) {
				t.Helper()
				addNode(t, r.State, "m", "a6000-8-bridged")
				a, err := allocation.Parse(on(t, r.State, p, "m", 0, 1).Annotations[allocation.Key])
				if err != nil {
					t.Fatal(err)
				}
				r.Nominator.ReserveNominated(p.UID, a, reservations.WaitsFor{Until: r.clock.now.Add(time.Minute)})
			},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r, pods, preemptor := heldEnv(t)
			if tc.change != nil {
				tc.change(t, r, preemptor)
			}
			info, l := r.view(t, pods...)
			other := schedtest.Pod("other").GPUs(2).Priority(tc.priority).Obj()
			d := demandOf(t, other)
			free := r.Nodes.View(d, info, l).Free(testResource)
			if has := free.Has(0) && free.Has(1); has != tc.want {
				t.Errorf("Score sees %v free, want 0 and 1 among them: %t", free.Positions(), tc.want)
			}
			a, reason := r.Allocations.Assume(d, other, info, l)
			if reason != placement.Fits {
				t.Fatalf("Reserve: %s", reason)
			}
			got := a.Mask(testResource, r.Nodes.Node("n").Accels[0].Graph)
			if (got == nvtopo.MaskOf(0, 1)) != tc.want || !tc.want && got&nvtopo.MaskOf(0, 1) != 0 {
				t.Errorf("the other pod has %v, want the pair of 0 and 1: %t", got.Positions(), tc.want)
			}
		})
	}
	t.Run("is given to the pod itself", func(t *testing.T) {
		r, pods, preemptor := heldEnv(t)
		info, l := r.view(t, pods...)
		a, reason := r.Allocations.Assume(demandOf(t, preemptor), preemptor, info, l)
		if reason != placement.Fits || a.Mask(testResource, r.Nodes.Node("n").Accels[0].Graph) != nvtopo.MaskOf(0, 1) {
			t.Errorf("%q, %v", reason, a)
		}
	})
	t.Run("is used for Filter, which gets the pod with the node", func(t *testing.T) {
		r, pods, _ := heldEnv(t)
		linked := schedtest.Pod("linked").GPUs(2).Priority(4).Annotation(podrequest.MinLinkKey, "NVLINK").Obj()
		info, l := r.view(t, pods...)
		info = info.Snapshot()
		info.AddPodInfo(r.listers.nominated("n")[0])
		if v := r.Nodes.Judge(demandOf(t, linked), info, l); v.Reason != placement.FewLinked || v.Never {
			t.Errorf("a pair for another pod: %+v, want %q", v, placement.FewLinked)
		}
		for n, want := range map[int]placement.Reason{3: placement.Fits, 4: placement.FewGPUs} {
			pod := schedtest.Pod("more").GPUs(n).Priority(4).Obj()
			if v := r.Nodes.Judge(demandOf(t, pod), info, l); v.Reason != want {
				t.Errorf("%d GPUs beside the held ones: %q, want %q", n, v.Reason, want)
			}
		}
	})
}

// TestNominatedVictims: victims of a nominated pod are no victims of other pods.
func TestNominatedVictims(t *testing.T) {
	r, _, preemptor := heldEnv(t)
	for priority, want := range map[int32][]types.UID{4: {"victim"}, 5: {"victim"}, 6: nil} {
		if got := r.Nominator.Leaving("n", "other", priority); !slices.Equal(got, want) {
			t.Errorf("for another pod of priority %d %v are leaving, want %v", priority, got, want)
		}
	}
	if got := r.Nominator.Leaving("n", preemptor.UID, 5); len(got) > 0 {
		t.Errorf("for the pod itself %v are leaving: if their eviction failed it has to try again", got)
	}
	r.nominate(t)
	if got := r.Nominator.Leaving("n", "other", 5); len(got) > 0 {
		t.Errorf("%v are leaving though the nomination has ended", got)
	}
}

// TestWaitingPodWakeUp: a pod that goes on waiting wakes no pods. Each check of the pods it waits for
// renews its nominated allocation. If that woke the waiting pods, itself among them, they would be tried
// without end.
func TestWaitingPodWakeUp(t *testing.T) {
	r, _, preemptor := heldEnv(t)
	woken := false
	r.Changes.onFreed = func() { woken = true }
	same := r.Allocations.reservations.Nominated(preemptor.UID).Allocation
	r.Nominator.ReserveNominated(preemptor.UID, same, reservations.WaitsFor{Until: r.clock.now.Add(time.Hour)})
	if woken {
		t.Error("the same two GPUs are held still, and others are woken")
	}
	other, err := allocation.Parse(on(t, r.State, schedtest.Pod("preemptor").GPUs(2).Obj(), "n", 1, 3).Annotations[allocation.Key])
	if err != nil {
		t.Fatal(err)
	}
	r.Nominator.ReserveNominated(preemptor.UID, other, reservations.WaitsFor{Until: r.clock.now.Add(time.Hour)})
	if !woken {
		t.Error("one of the GPUs is held no more, and nobody is woken")
	}
}

// TestFailedEviction: a victim whose eviction failed stays. However often its preemptor tries again,
// others wait for it only for a short time.
func TestFailedEviction(t *testing.T) {
	r, _, preemptor := heldEnv(t)
	again := func() {
		r.clock.now = r.clock.now.Add(reservations.EvictWithin/2 + time.Second)
		h := r.Allocations.reservations.Nominated(preemptor.UID)
		r.Nominator.ReserveNominated(preemptor.UID, h.Allocation, reservations.WaitsFor{Victims: []types.UID{"victim"}, Until: r.clock.now.Add(time.Minute)})
	}
	again()
	if got := r.Nominator.Leaving("n", "other", 5); len(got) != 1 {
		t.Errorf("%v are leaving, want the victim, which was told a short time ago", got)
	}
	again()
	if got := r.Nominator.Leaving("n", "other", 5); len(got) > 0 {
		t.Errorf("%v are leaving: their eviction failed", got)
	}
}

// TestVictimDeviceRelease: a pod waits until kubelet has released the devices of its victims.
func TestVictimDeviceRelease(t *testing.T) {
	r, _, preemptor := heldEnv(t)
	info, _ := r.view(t)
	if r.Nominator.Releasing(preemptor.UID, info) {
		t.Error("nothing is recorded of the victim")
	}
	r.record(t, "victim", 0, 1)
	if !r.Nominator.Releasing(preemptor.UID, info) {
		t.Error("kubelet's record still has the victim's devices")
	}
	victim := schedtest.Pod("victim").GPUs(2).Node("n").Obj()
	if stays, _ := r.view(t, victim); r.Nominator.Releasing(preemptor.UID, stays) {
		t.Error("a victim that runs on is waited for: its eviction failed")
	}
	victim.DeletionTimestamp = new(metav1.Now())
	if goes, _ := r.view(t, victim); !r.Nominator.Releasing(preemptor.UID, goes) {
		t.Error("a victim that is going has its devices still")
	}
	if r.Nominator.Releasing("other", info) {
		t.Error("another pod does not wait for that")
	}
	r.tell(t, func(s *v1alpha1.NodeGPUTopologyStatus) { s.Allocations = nil })
	if r.Nominator.Releasing(preemptor.UID, info) {
		t.Error("the devices are released")
	}
	r.tell(t, func(s *v1alpha1.NodeGPUTopologyStatus) {
		s.Allocations = []v1alpha1.Allocation{{PodUID: "victim", Container: "main", Resource: testResource, GPUs: r.uuids(0, 1), State: "confirmed"}}
	})
	if !r.Nominator.Releasing(preemptor.UID, info) {
		t.Error("kubelet's record has the victim's devices again")
	}
	r.tell(t, func(s *v1alpha1.NodeGPUTopologyStatus) {
		s.Allocations = []v1alpha1.Allocation{{PodUID: "awaited", Container: "main", Resource: testResource, GPUs: r.uuids(0, 1), State: "confirmed"}}
	})
	if !r.Nominator.Releasing(preemptor.UID, info) {
		t.Error("kubelet's record has the devices of a pod that went anyway")
	}
	r.PodDevices.leases.Drop(nodelease.AgentPrefix + "n")
	if r.Nominator.Releasing(preemptor.UID, info) {
		t.Error("the agent is gone, and with it its word")
	}
}

// TestImminentRelease: a pod fits soon on a node whose kubelet is about to release devices.
func TestImminentRelease(t *testing.T) {
	r := newTestEnv(t, "dgx1-v100")
	r.record(t, "gone", 0, 1, 2, 3)
	holder := on(t, r.State, schedtest.Pod("holder").GPUs(4).Obj(), "n", 4, 5, 6, 7)
	info, l := r.view(t, holder)
	d := demandOf(t, schedtest.Pod("p").GPUs(2).Obj())
	if !r.Nodes.KubeletBehind(d, info, l) || r.fitsAhead(d, info, l) {
		t.Error("nobody knows when the pod went")
	}
	r.podDeleted("gone")
	if v := r.Nodes.Judge(d, info, l); v.Reason != placement.FewGPUs {
		t.Errorf("the devices are not free yet, but %+v", v)
	}
	if got := r.Nodes.Unreleased("n"); !slices.Equal(got, []string{"gone"}) {
		t.Errorf("the devices of %v are not released yet, want those of the pod that has gone", got)
	}
	if !r.fitsAhead(d, info, l) {
		t.Error("the pod has just gone: its devices come free")
	}
	if r.fitsAhead(demandOf(t, schedtest.Pod("p").GPUs(5).Obj()), info, l) {
		t.Error("four devices come free, five are asked")
	}
	r.Waiting.TryAgainBy(r.clock.now.Add(reservations.ReleaseWithin))
	r.Waiting.TryAgainBy(r.clock.now.Add(time.Hour)) // others that wait longer do not postpone it
	if r.Waiting.lookAgain.passed(r.clock.now) {
		t.Error("the wait has just begun")
	}
	r.clock.now = r.clock.now.Add(reservations.ReleaseWithin + time.Second)
	if r.fitsAhead(d, info, l) {
		t.Error("the devices should be free by now")
	}
	if !r.Waiting.lookAgain.passed(r.clock.now) || r.Waiting.lookAgain.passed(r.clock.now) {
		t.Error("the pod that waited is not woken once")
	}
}

// TestNominationEndWakeUp: the end of a nominated allocation wakes the pods it kept out, unless its pod
// took the devices. No other event does.
func TestNominationEndWakeUp(t *testing.T) {
	tests := map[string]struct {
		change func(t *testing.T, r *testEnv, preemptor *v1.Pod)
		want   bool
	}{
		"bound with the held pair": {change: func(t *testing.T, r *testEnv,
			p *v1.Pod,
		) {
			t.Helper()
			r.handlers.podEvent(nil, on(t, r.State, p, "n", 0, 1))
		}},
		"bound with another pair": {change: func(t *testing.T, r *testEnv,
			p *v1.Pod,
		) {
			t.Helper()
			r.handlers.podEvent(nil, on(t, r.State, p, "n", 0, 3))
		}, want: true},
		"bound without a choice": {change: func(t *testing.T, r *testEnv,
			p *v1.Pod,
		) {
			t.Helper()
			r.handlers.podEvent(nil, on(t, r.State, p, "n"))
		}, want: true},
		"bound elsewhere": {change: func(t *testing.T, r *testEnv,
			p *v1.Pod,
		) {
			t.Helper()
			r.handlers.podEvent(nil, on(t, r.State, p, "other"))
		}, want: true},
		"gone":     {change: func(_ *testing.T, r *testEnv, p *v1.Pod) { r.podDeleted(p.UID) }, want: true},
		"given up": {change: func(_ *testing.T, r *testEnv, p *v1.Pod) { r.Nominator.EndNominated(p.UID) }, want: true},
		"over, in a cycle": {want: true, change: func(t *testing.T, r *testEnv, _ *v1.Pod) {
			t.Helper()
			r.clock.now = r.clock.now.Add(2 * time.Minute)
			_, l := r.view(t)
			r.Allocations.Sweep(l)
		}},
		"not over yet": {change: func(t *testing.T, r *testEnv, _ *v1.Pod) {
			t.Helper()
			_, l := r.view(t)
			r.Allocations.Sweep(l)
		}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r, _, preemptor := heldEnv(t)
			woken := false
			r.Changes.onFreed = func() { woken = true }
			tc.change(t, r, preemptor)
			if woken != tc.want {
				t.Errorf("woken: %t, want %t", woken, tc.want)
			}
		})
	}
}
