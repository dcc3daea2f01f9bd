// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// ofFour is a member of gang g of four, on a node of its own if it is bound.
func (e *testEnv) ofFour(uid string, i int, bound bool) *v1.Pod {
	pod := member("g", 4, fmt.Sprintf("g-%d", i)).UID(uid).Created(e.clock.Now())
	if bound {
		pod.Node(fmt.Sprintf("n%d", i))
	}
	return pod.Obj()
}

// TestReplacementAfterSuccess: a member is replaced beside one that succeeded. kube-scheduler's informer
// drops pods that finished, and the replacement waited for ever with "gang: 3 of 4 members". Whichever of
// the two informers is first, the member that succeeded is part of the gang until it is deleted.
func TestReplacementAfterSuccess(t *testing.T) {
	t.Parallel()
	steps := map[string]func(r *testEnv, live, done *v1.Pod){
		"the finished pod is told of last": func(r *testEnv, live, done *v1.Pod) {
			r.gangs.DeletePod(live)
			r.gangs.SetEnded(done)
		},
		"the finished pod is told of first": func(r *testEnv, live, done *v1.Pod) {
			r.gangs.SetEnded(done)
			r.gangs.DeletePod(live)
		},
		"the finished pod is told of first, and then as it was before": func(r *testEnv, live, done *v1.Pod) {
			r.gangs.SetEnded(done)
			r.gangs.SetPod(live)
			r.gangs.DeletePod(live)
		},
		"the finished pod is told of when the others wait already": func(r *testEnv, live, done *v1.Pod) {
			r.gangs.DeletePod(live)
			r.clock.Step(time.Minute)
			r.gangs.tick()
			r.gangs.SetEnded(done)
		},
	}
	for name, step := range steps {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newTestEnv(t, 100, 1, false)
			for i := range 4 {
				r.set(r.ofFour(fmt.Sprint("u", i), i, true))
			}
			live := r.pods["g-3"]
			done := live.DeepCopy()
			done.Status.Phase = v1.PodSucceeded
			r.delete("g-2")
			replacement := r.ofFour("again", 2, false)
			r.gangs.SetPod(replacement)
			delete(r.pods, "g-3")
			step(r, live, done)
			if got := r.gangs.Gate(replacement); got != "" {
				t.Errorf("the replacement is kept out of the queue: %q", got)
			}
			r.gangs.DeleteEnded(done)
			if got, want := r.gangs.Gate(replacement), "gang: 3 of 4 members"; got != want {
				t.Errorf("once the member that succeeded is deleted: %q, want %q", got, want)
			}
		})
	}
}

// TestEarlierRun: an earlier run is ignored. The pods of a run that is over must not make the first
// member of a new one a member above the minimum, which would start alone.
func TestEarlierRun(t *testing.T) {
	t.Parallel()
	r := newTestEnv(t, 100, 1, false)
	for i := range 4 {
		done := r.ofFour(fmt.Sprint("u", i), i, true)
		done.Status.Phase = v1.PodSucceeded
		r.gangs.SetEnded(done)
	}
	first := r.ofFour("new", 7, false)
	r.gangs.SetPod(first)
	if got, want := r.gangs.Gate(first), "gang: 1 of 4 members"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
