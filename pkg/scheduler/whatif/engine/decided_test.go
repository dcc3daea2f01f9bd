// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/pkg/inspect/whatif"
	"github.com/nvtopo/nvtopo/pkg/scheduler/whatif/memoryapi"
)

// TestUntriedPod: a pod that was not tried is undecided. The absence of writes is no proof that a pod
// waits.
func TestUntriedPod(t *testing.T) {
	for name, tc := range map[string]struct {
		change      func(*v1.Pod)
		wantDecided bool
		want        whatif.Outcome
	}{
		"nobody has said anything": {func(*v1.Pod) {}, false, whatif.Undecided},
		"it was refused": {func(p *v1.Pod) {
			p.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionFalse, Message: "0/1 nodes"}}
		}, true, whatif.Waits},
		"it is behind a gate": {func(p *v1.Pod) { p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "g"}} }, true, whatif.Waits},
		"it is nominated":     {func(p *v1.Pod) { p.Status.NominatedNodeName = "n" }, true, whatif.Preempts},
		"it is placed":        {func(p *v1.Pod) { p.Spec.NodeName = "n" }, true, whatif.Placed},
	} {
		t.Run(name, func(t *testing.T) {
			store, err := memoryapi.NewStore(nil)
			if err != nil {
				t.Fatal(err)
			}
			pod := schedtest.Pod("p").Namespace("a").Obj()
			tc.change(pod)
			q := &question{running: &running{scores: newScores()}, store: store, asked: &whatif.Asked{Pods: []*v1.Pod{pod}}}
			if err := q.submit(); err != nil {
				t.Fatal(err)
			}
			if got := q.decided(); got != tc.wantDecided {
				t.Errorf("decided %t, want %t", got, tc.wantDecided)
			}
			a, err := q.answer()
			if err != nil {
				t.Fatal(err)
			}
			if got := a.Pods[0].Outcome; got != tc.want {
				t.Errorf("outcome %s, want %s", got, tc.want)
			}
		})
	}
}
