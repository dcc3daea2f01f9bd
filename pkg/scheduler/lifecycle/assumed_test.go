// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/nvtopo/nvtopo/internal/schedtest"
)

// TestStuckCache: a scheduler cache that keeps a replaced pod ends the process.
func TestStuckCache(t *testing.T) {
	pod := func(uid, node string) *v1.Pod {
		return schedtest.Pod("p").UID(uid).Node(node).Obj()
	}
	type steps struct {
		*assumed
		cache.ResourceEventHandler
	}
	tests := map[string]struct {
		do func(s steps)

		wantEnded bool
		wantLeft  int // pods still assumed
	}{
		"bound, then replaced": {
			func(s steps) { s.reserve("1"); s.bind(pod("1", "n")); s.OnUpdate(pod("1", ""), pod("2", "")) }, true, 1,
		},
		"bound, then replaced by a pod on another node": {
			func(s steps) { s.reserve("1"); s.bind(pod("1", "n")); s.OnUpdate(pod("1", ""), pod("2", "m")) }, true, 1,
		},
		"replaced while the answer to its Binding is on the way": {
			func(s steps) { s.reserve("1"); s.OnUpdate(pod("1", ""), pod("2", "")); s.bind(pod("1", "n")) }, true, 1,
		},
		"replaced, and its Binding refused": {
			func(s steps) { s.reserve("1"); s.OnUpdate(pod("1", ""), pod("2", "")); s.forget("1") }, false, 0,
		},
		"replaced before any attempt": {
			func(s steps) { s.OnUpdate(pod("1", ""), pod("2", "")) }, false, 0,
		},
		"seen bound, then replaced, which kube-scheduler sees to": {
			func(s steps) {
				s.reserve("1")
				s.bind(pod("1", "n"))
				s.OnUpdate(pod("1", ""), pod("1", "n"))
				s.OnUpdate(pod("1", "n"), pod("2", ""))
			}, false, 0,
		},
		"seen bound before the answer to its Binding came": {
			func(s steps) { s.reserve("1"); s.OnUpdate(pod("1", ""), pod("1", "n")); s.bind(pod("1", "n")) }, false, 0,
		},
		"bound and seen deleted": {
			func(s steps) {
				s.reserve("1")
				s.bind(pod("1", "n"))
				s.OnDelete(cache.DeletedFinalStateUnknown{Key: "p", Obj: pod("1", "")})
				s.OnAdd(pod("2", ""), false)
			}, false, 0,
		},
		"tried again after a failure, bound, then replaced": {
			func(s steps) {
				s.reserve("1")
				s.forget("1")
				s.reserve("1")
				s.bind(pod("1", "n"))
				s.OnUpdate(pod("1", ""), pod("2", ""))
			}, true, 1,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			ended := 0
			a := newAssumed(func(p *v1.Pod) {
				if p.UID != "1" {
					t.Errorf("the process ends because of pod %s, want 1", p.UID)
				}
				ended++
			})
			tc.do(steps{a, a.handler()})
			if (ended == 1) != tc.wantEnded || ended > 1 {
				t.Errorf("the process was ended %d times, want it: %v", ended, tc.wantEnded)
			}
			if len(a.pods) != tc.wantLeft {
				t.Errorf("still assumed: %v, want %d", a.pods, tc.wantLeft)
			}
		})
	}
}

// TestDeletedDuringAttempt: the deletion of a pod is known until its attempt ends, however long its write
// waits. The API server would still bind a pod that has ended.
func TestDeletedDuringAttempt(t *testing.T) {
	pod := schedtest.Pod("p").UID("1").Obj()
	tests := map[string]struct {
		end func(a *assumed) // of the attempt
	}{
		"its write is given up":      {func(a *assumed) { a.forget("1") }},
		"it was bound all the same":  {func(a *assumed) { a.bind(pod) }},
		"it is replaced, and failed": {func(a *assumed) { a.replace(pod); a.forget("1") }},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			a := newAssumed(func(*v1.Pod) { t.Error("the process ends") })
			if a.reserve("1"); a.left("1") {
				t.Error("the pod is gone before it was deleted")
			}
			if a.handler().OnDelete(pod); !a.left("1") {
				t.Error("nobody knows that the pod is gone while its attempt goes on")
			}
			if tc.end(a); a.left("1") || len(a.pods) > 0 {
				t.Errorf("after the end of its attempt the pod is remembered: %v", a.pods)
			}
		})
	}
}
