// SPDX-License-Identifier: Apache-2.0

package metering

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/event"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/internal/testobj"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// asked is a queue that records the delay of each enqueued pod.
type asked struct {
	queue

	after map[types.UID]time.Duration
}

func (a asked) Add(uid types.UID)                           { a.after[uid] = 0 }
func (a asked) AddAfter(uid types.UID, after time.Duration) { a.after[uid] = after }

// TestWaitingPods: only pods with records can wait.
func TestWaitingPods(t *testing.T) {
	now := metav1.Now()
	pod := func(node string, phase v1.PodPhase, changes ...func(*v1.Pod)) *v1.Pod {
		return testobj.Pod("a").Node(node).GPUs(4).Phase(phase).With(changes...).Obj()
	}
	deleted := func(p *v1.Pod) { p.DeletionTimestamp = &now }
	kept := func(p *v1.Pod) { p.Finalizers = []string{names.FinalizerMetering} }
	other := func(p *v1.Pod) { p.UID = "b" }
	pending, running, succeeded := v1.PodPending, v1.PodRunning, v1.PodSucceeded
	for name, tc := range map[string]struct {
		before, after *v1.Pod
		want          map[types.UID]time.Duration
	}{
		"one that is bound is recorded at once":                  {pod("", pending), pod("n1", pending), map[types.UID]time.Duration{"a": 0}},
		"one that starts to run later":                           {pod("n1", pending), pod("n1", running), map[types.UID]time.Duration{"a": recorded}},
		"one that ends is let go at once":                        {pod("n1", running), pod("n1", succeeded), map[types.UID]time.Duration{"a": 0}},
		"one that is deleted, too":                               {pod("n1", running), pod("n1", running, deleted), map[types.UID]time.Duration{"a": 0}},
		"one that is deleted before it was bound, but kept":      {pod("", pending, kept), pod("", pending, kept, deleted), map[types.UID]time.Duration{"a": 0}},
		"one without a node holds nothing":                       {pod("", pending), pod("", pending), map[types.UID]time.Duration{}},
		"one that came for another, which is remembered as gone": {pod("n1", running), pod("n1", running, other), map[types.UID]time.Duration{"a": 0, "b": 0}},
	} {
		t.Run(name, func(t *testing.T) {
			q := asked{after: map[types.UID]time.Duration{}}
			r := &reconciler{memory: newMemory(), clock: clock.RealClock{}, heartbeat: &heartbeat{}}
			r.pods().Update(t.Context(), event.UpdateEvent{ObjectOld: tc.before, ObjectNew: tc.after}, q)
			if diff := cmp.Diff(tc.want, q.after); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if _, gone := r.memory.of("a"); gone != (tc.after.UID != "a") {
				t.Errorf("remembered as gone: %v", gone)
			}
		})
	}
}
