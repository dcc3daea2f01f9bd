// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"context"
	"errors"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/leader"
)

// TestNewLeaderCheck: a new leader reads the API server before it writes an allocation. The informers of
// the elected process do not have its predecessor's last allocation yet.
func TestNewLeaderCheck(t *testing.T) {
	broken := errors.New("no server")
	tests := map[string]struct {
		after time.Duration // since the election
		there func(theirs *v1.Pod) []v1.Pod
		fails error
		want  error
		asked int
	}{
		"a pod has the GPUs":                   {there: func(p *v1.Pod) []v1.Pod { return []v1.Pod{*p} }, want: leader.ErrUnheard, asked: 1},
		"nobody is there":                      {there: func(*v1.Pod) []v1.Pod { return nil }, asked: 1},
		"a pod that has them has failed":       {there: func(p *v1.Pod) []v1.Pod { p.Status.Phase = v1.PodFailed; return []v1.Pod{*p} }, asked: 1},
		"a copy of the annotation is no pod's": {there: func(p *v1.Pod) []v1.Pod { p.UID = "copy"; return []v1.Pod{*p} }, asked: 1},
		"a pod without a choice is there":      {there: func(p *v1.Pod) []v1.Pod { p.Annotations = nil; return []v1.Pod{*p} }, asked: 1},
		"the API server does not answer":       {there: func(*v1.Pod) []v1.Pod { return nil }, fails: broken, want: broken, asked: 1},
		"long after the election": {
			after: leader.ConfirmFor + time.Second, there: func(p *v1.Pod) []v1.Pod { return []v1.Pod{*p} },
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := newTestEnv(t, "dgx1-v100")
			start := r.elect()
			reserve := func(name string) (*v1.Pod, *allocation.Allocation) {
				pod := schedtest.Pod(name).GPUs(8).Obj()
				info, l := r.view(t)
				a, reason := r.Allocations.Assume(demandOf(t, pod), pod, info, l)
				if reason != placement.Fits {
					t.Fatal(reason)
				}
				return pod, a
			}
			theirs, a := reserve("theirs")
			text, err := a.Encode()
			if err != nil {
				t.Fatal(err)
			}
			theirs.Spec.NodeName, theirs.Annotations = "n", map[string]string{allocation.Key: text}
			r.Allocations.Forget(theirs.UID, "n") // it was another process's
			asked := 0
			r.Binder.leader.Connect(func(_ context.Context, node string) ([]v1.Pod, error) {
				asked++
				if node != "n" {
					t.Errorf("asked about node %s", node)
				}
				return tc.there(theirs), tc.fails
			})
			r.clock.now = start.Add(time.Second + tc.after)
			r.see(start, elected{"host_me", 1, 1 + int(tc.after/time.Second)})
			mine, _ := reserve("mine")
			if err := r.Binder.Attempt(mine.UID, "n").MayCarryOut(t.Context()); !errors.Is(err, tc.want) {
				t.Errorf("the answer is %v, want %v", err, tc.want)
			}
			if got := r.Binder.leader.TakingOver(); got != (tc.after < leader.ConfirmFor) {
				t.Errorf("%v after the election it is taking over: %t", tc.after, got)
			}
			if asked != tc.asked {
				t.Errorf("asked %d times, want %d", asked, tc.asked)
			}
		})
	}
}
