// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// attempt reserves for a pod and lets its Binding end without a clear answer.
func (r *rig) attempt(t *testing.T, pod *v1.Pod) *Allocation {
	t.Helper()
	info, l := r.view(t)
	a, reason := r.Reserve(demandOf(t, pod), pod, info, l)
	if reason != Fits {
		t.Fatalf("pod %s: %s", pod.Name, reason)
	}
	r.BindingBegan(pod.UID, "n")
	r.Unreserve(pod.UID, "n")
	return a
}

// Each attempt whose end was in doubt kept its set of GPUs until the doubt was decided,
// 65 s as shipped, and the next attempt took another: a pod of two GPUs that could not be
// bound had a node of eight after four attempts.
func TestAPodIsTriedAgainWithTheChoiceThatIsInDoubt(t *testing.T) {
	for _, gpus := range []int{2, 8} {
		r := newRig(t, "dgx1-v100")
		pod := gpuPod("p", gpus)
		first := r.attempt(t, pod)
		for range 5 {
			info, l := r.view(t)
			if v := r.Judge(demandOf(t, pod), info, l); v.Reason != Fits {
				t.Fatalf("%d GPUs: the pod does not fit beside its own choice: %s", gpus, v.Reason)
			}
			if again := r.attempt(t, pod); again != first {
				t.Fatalf("%d GPUs: chose %q, want %q again", gpus, again.GPUs(testResource), first.GPUs(testResource))
			}
		}
		if left := r.Dump(); len(left) != 1 || left[0].Phase != "doubtful" {
			t.Errorf("%d GPUs: in flight %+v, want one that is doubtful", gpus, left)
		}
		if info, l := r.view(t); gpus == 8 && r.Judge(demandOf(t, gpuPod("other", 1)), info, l).Reason == Fits {
			t.Error("another pod fits where all GPUs are kept for one in doubt")
		}
		r.clock.now = r.clock.now.Add(2 * requestTimeout)
		for _, c := range r.doubts() {
			r.decide(c, pod)
		}
		if left := r.Dump(); len(left) != 0 {
			t.Errorf("%d GPUs: in flight after the doubt was decided: %+v", gpus, left)
		}
	}
}

func TestAChoiceInDoubtIsTakenAgainOnlyIfItWouldBeChosen(t *testing.T) {
	sick := func(t *testing.T, r *rig, a *Allocation) {
		t.Helper()
		obj := topologyOf(t, "n", "dgx1-v100")
		obj.ResourceVersion = "2"
		for i := range obj.Status.GPUHealth {
			if obj.Status.GPUHealth[i].ID == a.GPUs(testResource)[0] {
				obj.Status.GPUHealth[i].Healthy = false
			}
		}
		if _, err := r.Apply(obj); err != nil {
			t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		change func(t *testing.T, r *rig, a *Allocation)
		pod    *v1.Pod // of the next attempt
	}{
		"a GPU of it fails":             {sick, gpuPod("p", 2)},
		"the pod asks for more":         {nil, gpuPod("p", 3)},
		"the pod asks for other things": {nil, annotated(gpuPod("p", 2), MinLinkKey, "SYS")},
		"another pod asks":              {nil, gpuPod("q", 2)},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, "dgx1-v100")
			first := r.attempt(t, gpuPod("p", 2))
			if tc.change != nil {
				tc.change(t, r, first)
			}
			second := r.attempt(t, tc.pod)
			n := r.Node("n")
			a, _ := n.Accels[0].Graph.Positions(first.GPUs(testResource))
			b, _ := n.Accels[0].Graph.Positions(second.GPUs(testResource))
			if a&b != 0 {
				t.Errorf("chose %v, want none of %v", b.Positions(), a.Positions())
			}
			var kept nvtopo.Mask
			for _, c := range r.cells.get("n").claims {
				kept |= c.alloc.mask(n.Accels[0])
			}
			if kept != a|b {
				t.Errorf("%v are kept, want both choices, %v and %v", kept.Positions(), a.Positions(), b.Positions())
			}
		})
	}
}

// What comes late of attempt 1 decides whether attempt 2, which ended between its PATCH
// and its Binding, has anything under way.
func TestAWriteThatEndedLeavesNothingInDoubt(t *testing.T) {
	r := newRig(t, "dgx1-v100")
	pod := gpuPod("p", 2)
	patched := func(pod *v1.Pod) {
		t.Helper()
		info, l := r.view(t)
		if _, reason := r.Reserve(demandOf(t, pod), pod, info, l); reason != Fits {
			t.Fatal(reason)
		}
		r.BindingBegan(pod.UID, "n")
		r.Written(pod.UID, "n")
		r.WriteEnded(pod.UID, "n")
	}
	patched(pod)
	r.Unreserve(pod.UID, "n")
	if left := r.Dump(); len(left) != 0 {
		t.Errorf("in flight although nothing can come late: %+v", left)
	}
	if present, earlier := r.Attempts(pod.UID, "n"); present || !earlier {
		t.Errorf("present attempt %t, earlier ones %t, want that the pod may carry an earlier choice only", present, earlier)
	}
	patched(pod)
	r.BindingBegan(pod.UID, "n")
	r.Unreserve(pod.UID, "n")
	// The Binding of that attempt may come late, to a pod that carries the next choice.
	patched(annotated(pod.DeepCopy(), MinLinkKey, "SYS"))
	r.Unreserve(pod.UID, "n")
	if left := r.Dump(); len(left) != 2 || left[0].Phase != "doubtful" || left[1].Phase != "doubtful" {
		t.Errorf("in flight %+v, want two that are doubtful", left)
	}
	r.podGone(pod.UID)
	if _, earlier := r.Attempts(pod.UID, "n"); len(r.noted) != 0 || !earlier {
		t.Errorf("%d pods that are gone are said to carry a choice", len(r.noted))
	}
}
