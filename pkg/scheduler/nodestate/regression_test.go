// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	schedcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// wakes counts how often the State wakes the waiting pods.
func (e *testEnv) wakes() func() int {
	n := 0
	e.Changes.onFreed = func() { n++ }
	return func() int { return n }
}

// TestReservationOldAnnotation: a reservation outlives the annotation of an earlier attempt.
func TestReservationOldAnnotation(t *testing.T) {
	r := newTestEnv(t, "dgx1-v100")
	pod := schedtest.Pod("p").GPUs(1).Obj()
	info, l := r.view(t)
	first, reason := r.Allocations.Assume(demandOf(t, pod), pod, info, l)
	if reason != placement.Fits {
		t.Fatal(reason)
	}
	// PreBind wrote the first allocation, the Binding had no answer; nothing is bound.
	r.Binder.Attempt(pod.UID, "n").BindingBegan()
	r.Allocations.Forget(pod.UID, "n")
	waiting := pod.DeepCopy()
	waiting.ResourceVersion = "2"
	text, err := first.Encode()
	if err != nil {
		t.Fatal(err)
	}
	waiting.Annotations = map[string]string{allocation.Key: text, podrequest.MinLinkKey: "SYS"} // its requests are others now
	second, reason := r.Allocations.Assume(demandOf(t, waiting), waiting, info, l)
	if reason != placement.Fits {
		t.Fatal(reason)
	}
	r.Binder.Attempt(pod.UID, "n").BindingBegan()
	// The scheduler assumed the pod with the annotation of the first attempt. The store has it bound with
	// the second, whose event its cache has not got yet.
	assumed, bound := waiting.DeepCopy(), waiting.DeepCopy()
	assumed.Spec.NodeName, bound.Spec.NodeName = "n", "n"
	if text, err = second.Encode(); err != nil {
		t.Fatal(err)
	}
	bound.Annotations, bound.ResourceVersion = map[string]string{allocation.Key: text}, "3"
	r.listers.pods = fixedStore{pod.UID: bound}
	r.handlers.podEvent(nil, bound)

	info, l = r.view(t, assumed)
	r.Allocations.Sweep(l)
	other := schedtest.Pod("other").GPUs(7).Obj()
	if a, reason := r.Allocations.Assume(demandOf(t, other), other, info, l); reason == placement.Fits {
		t.Errorf("the other pod got %q, and the first has %q", a.GPUs(testResource), second.GPUs(testResource))
	}
	info, l = r.view(t, bound)
	r.Allocations.Sweep(l)
	if left := r.Allocations.Dump(); len(left) != 0 {
		t.Errorf("in flight after the cache caught up: %+v", left)
	}
	if _, reason := r.Allocations.Assume(demandOf(t, other), other, info, l); reason != placement.Fits {
		t.Errorf("seven GPUs are free, but: %v", reason)
	}
}

// TestRepairedAnnotation: a reservation goes when its annotation was repaired.
func TestRepairedAnnotation(t *testing.T) {
	r := newTestEnv(t, "dgx1-v100")
	pod := schedtest.Pod("p").GPUs(1).Obj()
	info, l := r.view(t)
	a, reason := r.Allocations.Assume(demandOf(t, pod), pod, info, l)
	if reason != placement.Fits {
		t.Fatal(reason)
	}
	r.Binder.Attempt(pod.UID, "n").BindingBegan()
	var err error
	held, _ := r.Nodes.Node("n").Accels[0].Graph.Positions(a.GPUs(testResource))
	bound := on(t, r.State, pod, "n", held.First())
	if bound.Annotations[allocation.Key], err = a.Encode(); err != nil {
		t.Fatal(err)
	}
	bound.ResourceVersion = "2"
	r.handlers.podEvent(nil, bound)
	repaired := on(t, r.State, pod, "n", held.First()+1)
	repaired.ResourceVersion = "3"
	r.listers.pods = fixedStore{pod.UID: repaired}
	_, l = r.view(t, repaired)
	r.Allocations.Sweep(l)
	if left := r.Allocations.Dump(); len(left) != 0 {
		t.Errorf("in flight beside a repaired annotation: %+v", left)
	}
}

// TestVoidReservationWakeUp: pods wake when a reservation that held them back is void.
func TestVoidReservationWakeUp(t *testing.T) {
	t.Run("the pod is gone, which the scheduler's cache may have heard before us", func(t *testing.T) {
		r := newTestEnv(t, "dgx1-v100")
		pod := schedtest.Pod("p").GPUs(8).Obj()
		info, l := r.view(t)
		if _, reason := r.Allocations.Assume(demandOf(t, pod), pod, info, l); reason != placement.Fits {
			t.Fatal(reason)
		}
		woken := r.wakes()
		r.podDeleted(pod.UID)
		if woken() == 0 {
			t.Error("nobody was woken")
		}
		r.podDeleted(pod.UID)
		r.podDeleted("another")
		if woken() != 1 {
			t.Errorf("woken %d times, want once", woken())
		}
	})
	t.Run("the pod turned up on another node", func(t *testing.T) {
		r := newTestEnv(t, "dgx1-v100")
		pod := schedtest.Pod("p").GPUs(8).Obj()
		info, l := r.view(t)
		if _, reason := r.Allocations.Assume(demandOf(t, pod), pod, info, l); reason != placement.Fits {
			t.Fatal(reason)
		}
		r.Binder.Attempt(pod.UID, "n").BindingBegan()
		r.Allocations.Forget(pod.UID, "n")
		woken := r.wakes()
		elsewhere := pod.DeepCopy()
		elsewhere.Spec.NodeName = "m"
		r.handlers.podEvent(nil, elsewhere)
		if woken() != 1 {
			t.Errorf("woken %d times, want once", woken())
		}
	})
}

// TestNUMAWithoutGraph: a NUMA policy needs no graph.
func TestNUMAWithoutGraph(t *testing.T) {
	r := newTestEnv(t, "dgx1-v100")
	l := schedcache.NewSnapshot(nil, []*v1.Node{schedtest.Node("bare").Obj()}).NodeInfos()
	info, err := l.Get("bare")
	if err != nil {
		t.Fatal(err)
	}
	for affinity, want := range map[string]placement.Reason{"none": placement.Fits, "preferred": placement.Fits, "required": placement.NoGraph} {
		pod := schedtest.Pod("p").Annotation(podrequest.NUMAAffinityKey, affinity).Obj()
		if v := r.Nodes.Judge(demandOf(t, pod), info, l); v.Reason != want {
			t.Errorf("%s: %q, want %q", affinity, v.Reason, want)
		}
	}
}

// TestTopologyWakeUp: a topology that appears wakes pods that were refused before.
func TestTopologyWakeUp(t *testing.T) {
	r := newTestEnv(t, "dgx1-v100")
	woken := r.wakes()
	h := r.Nodes.topologies.Handler(r.Changes.passOn(t.Context()))
	h.OnAdd(topologyOf(t, "late", "dgx1-v100"), true)
	if woken() != 1 {
		t.Errorf("woken %d times, want once", woken())
	}
	h.OnAdd(topologyOf(t, "late", "dgx1-v100"), false)
	if woken() != 1 {
		t.Error("a topology that the store had already woke pods")
	}
}

// TestGoneObjects: no state is kept of objects that are gone.
func TestGoneObjects(t *testing.T) {
	r := newTestEnv(t, "dgx1-v100")
	pod := on(t, r.State, schedtest.Pod("p").GPUs(1).Obj(), "n", 0)
	r.listers.pods = fixedStore{pod.UID: pod}
	info, l := r.view(t, pod)
	if v := r.Nodes.Judge(demandOf(t, schedtest.Pod("q").GPUs(8).Obj()), info, l); v.Reason != placement.FewGPUs {
		t.Fatal(v.Reason)
	}
	r.listers.pods = fixedStore{}
	r.podDeleted(pod.UID)
	// The running cycle's snapshot still lists the pod.
	if a := r.PodDevices.allocationOf(pod, "n"); a == nil {
		t.Error("the annotation was not read")
	}
	if n := r.PodDevices.memo.Len(); n != 0 {
		t.Errorf("%d decoded annotations of pods that are gone", n)
	}
	r.Graphs.Remove("n", types.UID("topology-n"))
	if r.Nodes.cells.get("n").usage.Load() != nil {
		t.Error("the usage of a node without a topology is kept")
	}
}

// TestLatePatchDoubt: a doubtful allocation that a late patch put on the waiting pod is kept.
func TestLatePatchDoubt(t *testing.T) {
	r := newTestEnv(t, "dgx1-v100")
	pod := schedtest.Pod("p").GPUs(1).Obj()
	info, l := r.view(t)
	first, reason := r.Allocations.Assume(demandOf(t, pod), pod, info, l)
	if reason != placement.Fits {
		t.Fatal(reason)
	}
	r.Binder.Attempt(pod.UID, "n").BindingBegan()
	r.Allocations.Forget(pod.UID, "n")
	changed := schedtest.PodFrom(pod).Annotation(podrequest.MinLinkKey, "SYS").Obj() // its requests are others now
	second, reason := r.Allocations.Assume(demandOf(t, changed), changed, info, l)
	if reason != placement.Fits {
		t.Fatal(reason)
	}
	r.Binder.Attempt(pod.UID, "n").BindingBegan() // its PATCH was done, and then the first one's
	text, err := first.Encode()
	if err != nil {
		t.Fatal(err)
	}
	live := pod.DeepCopy()
	live.Annotations, live.ResourceVersion = map[string]string{allocation.Key: text}, "2"
	r.clock.now = r.clock.now.Add(2 * requestTimeout)
	for _, c := range r.doubts() {
		r.doubtReader.decide(c, live)
	}
	if left := r.Allocations.Dump(); len(left) != 2 {
		t.Errorf("in flight %+v, want the doubtful choice beside the present", left)
	}
	// The second attempt's Binding binds the pod with the first one's allocation.
	live.Spec.NodeName, live.ResourceVersion = "n", "3"
	r.handlers.podEvent(nil, live)
	info, l = r.view(t, live)
	r.Allocations.Sweep(l)
	if left := r.Allocations.Dump(); len(left) != 0 {
		t.Errorf("in flight after the pod was bound: %+v", left)
	}
	if r.Nodes.View(demandOf(t, pod), info, l).Free(testResource).Len() != 7 || second.Equal(first) {
		t.Error("want the second choice's GPU free again, and not the first one's")
	}
}

// TestFinishedPodDoubt: an unknown outcome of a pod that has finished is decided. The pod was bound and
// finished before the live read. No informer ever has it, so a confirmed reservation was kept for ever.
func TestFinishedPodDoubt(t *testing.T) {
	r := newTestEnv(t, "dgx1-v100")
	pod := schedtest.Pod("p").GPUs(1).Obj()
	info, l := r.view(t)
	choice, reason := r.Allocations.Assume(demandOf(t, pod), pod, info, l)
	if reason != placement.Fits {
		t.Fatal(reason)
	}
	r.Binder.Attempt(pod.UID, "n").BindingBegan()
	r.Allocations.Forget(pod.UID, "n")
	text, err := choice.Encode()
	if err != nil {
		t.Fatal(err)
	}
	live := pod.DeepCopy()
	live.Annotations, live.ResourceVersion = map[string]string{allocation.Key: text}, "2"
	live.Spec.NodeName, live.Status.Phase = "n", v1.PodSucceeded
	r.clock.now = r.clock.now.Add(2 * requestTimeout)
	for _, c := range r.doubts() {
		r.doubtReader.decide(c, live)
	}
	_, l = r.view(t)
	r.Allocations.Sweep(l)
	if left := r.Allocations.Dump(); len(left) != 0 {
		t.Errorf("reservations of a pod that has finished: %+v", left)
	}
}

// TestUnseenReplacement: a pod deleted and made again under its name while the watch was broken comes as
// an update from one UID to the other. The reservation of the first was kept for ever.
func TestUnseenReplacement(t *testing.T) {
	r := newTestEnv(t, "dgx1-v100")
	before, after := schedtest.Pod("p").GPUs(2).Obj(), schedtest.Pod("p").GPUs(2).UID("another").Obj()
	info, l := r.view(t)
	if _, reason := r.Allocations.Assume(demandOf(t, before), before, info, l); reason != placement.Fits {
		t.Fatal(reason)
	}
	r.Binder.Attempt(before.UID, "n").BindingBegan()
	r.handlers.podHandler().OnUpdate(before, after)
	r.Allocations.Sweep(l)
	if left := r.Allocations.Dump(); len(left) != 0 {
		t.Errorf("reservations of a pod that is gone: %+v", left)
	}
}

// TestLateBinding: in mode PreBind a Binding believed lost may be carried out after the PATCH of the next
// attempt, for another node: the pod then had the annotations of a node that it is not on, and after a
// restart of the scheduler its GPUs were unknown.
func TestLateBinding(t *testing.T) {
	cases := map[string]struct {
		change func(r *testEnv, pod, live *v1.Pod)
		want   bool
	}{
		"as it carries the choice for another node": {func(*testEnv, *v1.Pod, *v1.Pod) {}, true},
		"not while it waits":                        {func(_ *testEnv, _, live *v1.Pod) { live.Spec.NodeName = "" }, false},
		"not on another node":                       {func(_ *testEnv, _, live *v1.Pod) { live.Spec.NodeName = "other" }, false},
		"not a pod made anew":                       {func(_ *testEnv, _, live *v1.Pod) { live.UID = "another" }, false},
		"not if it carries a choice for its node": {func(r *testEnv, pod, live *v1.Pod) {
			live.Annotations[allocation.Key] = encoded(t, r.reservationsOf(pod.UID)[0].Allocation)
		}, false},
		"not while two of its choices there are in doubt": {func(r *testEnv, pod, _ *v1.Pod) {
			info, l := r.view(t)
			changed := schedtest.PodFrom(pod).Annotation(podrequest.MinLinkKey, "SYS").Obj() // its requests are others now
			if _, reason := r.Allocations.Assume(demandOf(t, changed), changed, info, l); reason != placement.Fits {
				t.Fatal(reason)
			}
		}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := newTestEnv(t, "dgx1-v100")
			pod := schedtest.Pod("p").GPUs(2).Obj()
			info, l := r.view(t)
			bound, reason := r.Allocations.Assume(demandOf(t, pod), pod, info, l)
			if reason != placement.Fits {
				t.Fatal(reason)
			}
			r.Binder.Attempt(pod.UID, "n").BindingBegan()
			r.Allocations.Forget(pod.UID, "n") // no answer; the next attempt is for node "other"
			r.clock.now = r.clock.now.Add(2 * requestTimeout)
			other := &allocation.Allocation{Version: bound.Version, Node: "other", PodUID: bound.PodUID, Containers: bound.Containers}
			live := pod.DeepCopy()
			live.ResourceVersion, live.Spec.NodeName = "7", "n"
			live.Annotations = map[string]string{
				allocation.Key: encoded(t, other), allocation.GPUIDsAlias: "x", allocation.GPUIDsKey + ".gone": "x", "example.com/mine": "kept",
			}
			tc.change(r, pod, live)
			client := fake.NewClientset(live)
			for _, c := range r.doubts() {
				if a := r.doubtReader.misplaced(c, live); a != nil {
					if err := r.doubtReader.correct(t.Context(), client, live, a); err != nil {
						t.Fatal(err)
					}
				}
			}
			got, err := client.CoreV1().Pods(live.Namespace).Get(t.Context(), live.Name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			want := live.Annotations
			if tc.want {
				if want, err = r.Nodes.Annotations(bound, true); err != nil {
					t.Fatal(err)
				}
				want["example.com/mine"] = "kept"
			}
			if diff := cmp.Diff(want, got.Annotations); diff != "" {
				t.Errorf("annotations (-want +got):\n%s", diff)
			}
			if !tc.want {
				return
			}
			r.handlers.podEvent(nil, got)
			if left := r.Allocations.Dump(); len(left) != 1 || left[0].Phase != "confirmed" {
				t.Errorf("in flight %+v, want the reservation confirmed", left)
			}
		})
	}
}

func encoded(t *testing.T, a *allocation.Allocation) string {
	t.Helper()
	text, err := a.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return text
}
