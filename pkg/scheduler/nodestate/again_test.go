// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	schedcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// attempt reserves for a pod and lets its Binding end without a clear answer.
func (e *testEnv) attempt(t *testing.T, pod *v1.Pod) *allocation.Allocation {
	t.Helper()
	info, l := e.view(t)
	a, reason := e.Allocations.Assume(demandOf(t, pod), pod, info, l)
	if reason != placement.Fits {
		t.Fatalf("pod %s: %s", pod.Name, reason)
	}
	e.Binder.Attempt(pod.UID, "n").BindingBegan()
	e.Allocations.Forget(pod.UID, "n")
	return a
}

// TestDoubtfulChoiceRetry: attempts with unknown outcome keep one set of GPUs. Each attempt kept its own
// set until its outcome was decided, 65 s as shipped, and the next one took another: a pod of two GPUs
// that could not be bound had a node of eight after four attempts.
func TestDoubtfulChoiceRetry(t *testing.T) {
	for _, gpus := range []int{2, 8} {
		r := newTestEnv(t, "dgx1-v100")
		pod := schedtest.Pod("p").GPUs(gpus).Obj()
		first := r.attempt(t, pod)
		for range 5 {
			info, l := r.view(t)
			if v := r.Nodes.Judge(demandOf(t, pod), info, l); v.Reason != placement.Fits {
				t.Fatalf("%d GPUs: the pod does not fit beside its own choice: %s", gpus, v.Reason)
			}
			if again := r.attempt(t, pod); again != first {
				t.Fatalf("%d GPUs: chose %q, want %q again", gpus, again.GPUs(testResource), first.GPUs(testResource))
			}
		}
		if left := r.Allocations.Dump(); len(left) != 1 || left[0].Phase != "doubtful" {
			t.Errorf("%d GPUs: in flight %+v, want one that is doubtful", gpus, left)
		}
		if info, l := r.view(t); gpus == 8 && r.Nodes.Judge(demandOf(t, schedtest.Pod("other").GPUs(1).Obj()), info, l).Reason == placement.Fits {
			t.Error("another pod fits where all GPUs are kept for one in doubt")
		}
		r.clock.now = r.clock.now.Add(2 * requestTimeout)
		for _, c := range r.doubts() {
			r.doubtReader.decide(c, pod)
		}
		if left := r.Allocations.Dump(); len(left) != 0 {
			t.Errorf("%d GPUs: in flight after the doubt was decided: %+v", gpus, left)
		}
	}
}

// TestDoubtfulChoiceReuse: an allocation with unknown outcome is taken again only if it would be chosen.
func TestDoubtfulChoiceReuse(t *testing.T) {
	sick := func(t *testing.T, r *testEnv, a *allocation.Allocation) {
		t.Helper()
		obj := topologyOf(t, "n", "dgx1-v100")
		obj.ResourceVersion = "2"
		for i := range obj.Status.GPUHealth {
			if obj.Status.GPUHealth[i].ID == a.GPUs(testResource)[0] {
				obj.Status.GPUHealth[i].Healthy = false
			}
		}
		if _, err := r.Graphs.Apply(obj); err != nil {
			t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		change func(t *testing.T, r *testEnv, a *allocation.Allocation)
		pod    *v1.Pod // of the next attempt
	}{
		"a GPU of it fails":             {sick, schedtest.Pod("p").GPUs(2).Obj()},
		"the pod asks for more":         {nil, schedtest.Pod("p").GPUs(3).Obj()},
		"the pod asks for other things": {nil, schedtest.Pod("p").GPUs(2).Annotation(podrequest.MinLinkKey, "SYS").Obj()},
		"another pod asks":              {nil, schedtest.Pod("q").GPUs(2).Obj()},
	} {
		t.Run(name, func(t *testing.T) {
			r := newTestEnv(t, "dgx1-v100")
			first := r.attempt(t, schedtest.Pod("p").GPUs(2).Obj())
			if tc.change != nil {
				tc.change(t, r, first)
			}
			second := r.attempt(t, tc.pod)
			n := r.Nodes.Node("n")
			a, _ := n.Accels[0].Graph.Positions(first.GPUs(testResource))
			b, _ := n.Accels[0].Graph.Positions(second.GPUs(testResource))
			if a&b != 0 {
				t.Errorf("chose %v, want none of %v", b.Positions(), a.Positions())
			}
			var kept nvtopo.Mask
			for _, c := range r.Nodes.reservedOn("n").Reservations {
				kept |= c.Allocation.Mask(testResource, n.Accels[0].Graph)
			}
			if kept != a|b {
				t.Errorf("%v are kept, want both choices, %v and %v", kept.Positions(), a.Positions(), b.Positions())
			}
		})
	}
}

// TestEndedWriteDoubt: late writes of attempt 1 decide whether attempt 2, which ended between its PATCH
// and its Binding, has any write in flight.
func TestEndedWriteDoubt(t *testing.T) {
	r := newTestEnv(t, "dgx1-v100")
	pod := schedtest.Pod("p").GPUs(2).Obj()
	patched := func(pod *v1.Pod) {
		t.Helper()
		info, l := r.view(t)
		if _, reason := r.Allocations.Assume(demandOf(t, pod), pod, info, l); reason != placement.Fits {
			t.Fatal(reason)
		}
		r.Binder.Attempt(pod.UID, "n").BindingBegan()
		r.Binder.Attempt(pod.UID, "n").Written()
		r.Binder.Attempt(pod.UID, "n").WriteEnded()
	}
	patched(pod)
	r.Allocations.Forget(pod.UID, "n")
	if left := r.Allocations.Dump(); len(left) != 0 {
		t.Errorf("in flight although nothing can come late: %+v", left)
	}
	if a := r.Binder.Attempt(pod.UID, "n"); a.HasChoice() || !a.Earlier() {
		t.Errorf("present attempt %t, earlier ones %t, want that the pod may carry an earlier choice only", a.HasChoice(), a.Earlier())
	}
	patched(pod)
	r.Binder.Attempt(pod.UID, "n").BindingBegan()
	r.Allocations.Forget(pod.UID, "n")
	// The Binding of that attempt may come late, to a pod that carries the next choice.
	patched(schedtest.PodFrom(pod).Annotation(podrequest.MinLinkKey, "SYS").Obj())
	r.Allocations.Forget(pod.UID, "n")
	if left := r.Allocations.Dump(); len(left) != 2 || left[0].Phase != "doubtful" || left[1].Phase != "doubtful" {
		t.Errorf("in flight %+v, want two that are doubtful", left)
	}
	r.podDeleted(pod.UID)
	if !r.Binder.Attempt(pod.UID, "n").Earlier() {
		t.Error("the reservations of a pod that is gone are dropped before a snapshot can replace them")
	}
	_, l := r.view(t)
	r.Allocations.Sweep(l)
	if r.Binder.Attempt(pod.UID, "n").Earlier() {
		t.Error("a pod that is gone is said to carry a choice")
	}
}

// attemptsInARow is how often a pod is sent to the node of its allocation with unknown outcome.
const attemptsInARow = 4

// TestAttemptCount: an attempt that ended before its own writes is counted. One that failed in another
// plugin's Permit was not, and the pod was sent to that node until the outcome was decided.
func TestAttemptCount(t *testing.T) {
	for name, began := range map[string]bool{"its own end is in doubt": true, "it ended before its PATCH": false} {
		t.Run(name, func(t *testing.T) {
			r := newTestEnv(t, "dgx1-v100")
			pod := schedtest.Pod("p").GPUs(2).Obj()
			r.attempt(t, pod)
			for i := range attemptsInARow {
				if got := r.Allocations.reservations.TriedOn(pod.UID); got != "n" {
					t.Errorf("after %d attempts more the pod is sent to %q, want n", i, got)
				}
				if began {
					r.attempt(t, pod)
					continue
				}
				info, l := r.view(t)
				if _, reason := r.Allocations.Assume(demandOf(t, pod), pod, info, l); reason != placement.Fits {
					t.Fatal(reason)
				}
				r.Allocations.Forget(pod.UID, "n")
			}
			if got := r.Allocations.reservations.TriedOn(pod.UID); got != "" {
				t.Errorf("after %d attempts more the pod is sent to %q, want any node", attemptsInARow, got)
			}
		})
	}
}

// TestOvertakenAttempt: attempt 1, believed lost, is carried out while attempt 2 is reserved. The Binding
// of attempt 2 got a conflict, which proves nothing, and its GPUs were kept for another 65 s.
func TestOvertakenAttempt(t *testing.T) {
	for name, tc := range map[string]struct {
		node   string // of attempt 2
		gpus   int
		change func(bound *v1.Pod)
		want   string // phase of the reservation of attempt 2
	}{
		"bound to another node":                  {"m", 2, nil, "void"},
		"to this one with the earlier choice":    {"n", 3, nil, "void"},
		"to another node, with no choice":        {"m", 2, func(p *v1.Pod) { p.Annotations = nil }, "void"},
		"to this one with a choice nobody knows": {"n", 3, func(p *v1.Pod) { p.Annotations = nil }, "doubtful"},
		"not bound":                              {"m", 2, func(p *v1.Pod) { p.Spec.NodeName = "" }, "doubtful"},
		"made anew":                              {"m", 2, func(p *v1.Pod) { p.UID = "another" }, "doubtful"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newTestEnv(t, "dgx1-v100")
			nodes := []*v1.Node{r.node, addNode(t, r.State, "m", "dgx1-v100")}
			store := fixedStore{}
			r.listers.pods = store
			pod := schedtest.Pod("p").GPUs(2).Obj()
			text, err := r.attempt(t, pod).Encode()
			if err != nil {
				t.Fatal(err)
			}
			l := schedcache.NewSnapshot(nil, nodes).NodeInfos()
			info, err := l.Get(tc.node)
			if err != nil {
				t.Fatal(err)
			}
			second := schedtest.Pod("p").GPUs(tc.gpus).Obj() // the pod's requests do not really change; here this changes the choice
			if _, reason := r.Allocations.Assume(demandOf(t, second), second, info, l); reason != placement.Fits {
				t.Fatal(reason)
			}
			bound := schedtest.PodFrom(pod).Annotation(allocation.Key, text).Node("n").ResourceVersion("7").Obj()
			if tc.change != nil {
				tc.change(bound)
			}
			store[bound.UID] = bound
			r.handlers.podEvent(nil, bound)
			woken := 0
			r.Changes.onFreed = func() { woken++ }
			r.Binder.Attempt(pod.UID, tc.node).BindingBegan()
			r.Allocations.Forget(pod.UID, tc.node)
			reservations := r.reservationsOf(pod.UID)
			if got := reservations[1].Phase.String(); len(reservations) != 2 || got != tc.want {
				t.Errorf("attempt 2 is %s, want %s; in flight %+v", got, tc.want, r.Allocations.Dump())
			}
			if (woken > 0) != (tc.want == "void") {
				t.Errorf("waiting pods were woken %d times, and attempt 2 is %s", woken, tc.want)
			}
		})
	}
}

// TestDroppedChoice: a dropped allocation stays known. The watch of pods is broken, the PATCH was carried
// out without an answer, and a live read decides the outcome: the pod, then placed by count, was bound
// with the dropped allocation, whose GPUs had been given to another pod.
func TestDroppedChoice(t *testing.T) {
	for name, tc := range map[string]struct {
		carries bool
		uid     string
		want    bool
	}{
		"it carries the choice":            {true, "p", true},
		"it carries none":                  {false, "p", false},
		"another carries one, of its name": {true, "q", false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newTestEnv(t, "dgx1-v100")
			pod := schedtest.Pod("p").GPUs(2).Obj()
			text, err := r.attempt(t, pod).Encode()
			if err != nil {
				t.Fatal(err)
			}
			r.clock.now = r.clock.now.Add(2 * requestTimeout)
			live := schedtest.PodFrom(pod).UID(tc.uid)
			if tc.carries {
				live.Annotation(allocation.Key, text)
			}
			for _, c := range r.doubts() {
				r.doubtReader.decide(c, live.Obj())
			}
			if left := r.Allocations.Dump(); len(left) != 0 {
				t.Errorf("in flight after the doubt was decided: %+v", left)
			}
			if earlier := r.Binder.Attempt(pod.UID, "n").Earlier(); earlier != tc.want {
				t.Errorf("the pod is said to carry a choice: %t, want %t", earlier, tc.want)
			}
			r.podDeleted(pod.UID)
			if r.Binder.Attempt(pod.UID, "n").Earlier() {
				t.Error("a pod that is gone is said to carry a choice")
			}
		})
	}
}
