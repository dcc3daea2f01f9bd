// SPDX-License-Identifier: Apache-2.0

package candidates

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/internal/testkit"
)

// TestActivationAfterRefusal: only certain pods are activated after a refused list. A pod is moved to the
// active queue until its cycle that considers all nodes begins, and only while it exists.
func TestActivationAfterRefusal(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Unix(1_700_000_000, 0))
	r := NewRetries(clk)
	for _, name := range []string{"due", "began", "ended", "gone"} {
		r.Add(schedtest.Pod(name).Obj())
	}
	if !r.Begin("began") || r.Begin("other") {
		t.Error("Begin does not say who was added")
	}
	r.Remove("ended")
	ctx, cancel := context.WithCancel(t.Context())
	activated, ended := make(chan map[string]*v1.Pod), make(chan struct{})
	go func() {
		defer close(ended)
		exists := func(pod *v1.Pod) bool { return pod.Name != "gone" }
		r.Run(ctx, exists, func(_ klog.Logger, pods map[string]*v1.Pod) { activated <- pods })
	}()
	testkit.Soon(t, "the pods wait", clk.HasWaiters)
	select {
	case pods := <-activated:
		t.Errorf("activated %v before the pods can be back in the queue", pods)
	default:
	}
	clk.Step(requeueDelay)
	if got := slices.Collect(maps.Keys(<-activated)); !slices.Equal(got, []string{"default/due"}) {
		t.Errorf("activated %v, want the pod that is due", got)
	}
	if got, want := r.Pods(), []types.UID{"began", "due"}; !slices.Equal(got, want) {
		t.Errorf("%v are tried on all nodes, want %v", got, want)
	}
	if r.Has("gone") || !r.Has("due") || r.Added() != 4 {
		t.Errorf("gone: %t, due: %t, added: %d, want false, true, 4", r.Has("gone"), r.Has("due"), r.Added())
	}
	cancel()
	<-ended
}

// TestChangeRetention: changes are checked until the snapshot has them: own changes once, events of the
// informers for as long as the snapshot may be behind.
func TestChangeRetention(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Unix(1_700_000_000, 0))
	x := NewIndex(clk, nil, nil, 0)
	ours, soon := &Node{}, &Node{}
	x.Changed(ours)
	x.ChangesSoon(soon)
	x.Changed(soon) // which does not shorten it
	looks := func(step string, want ...*Node) {
		t.Helper()
		if got := x.changes.take(nil, clk.Now()); !slices.Equal(got, want) {
			t.Errorf("%s: %d nodes are looked at, want %d", step, len(got), len(want))
		}
	}
	looks("at once", ours, soon)
	looks("again", soon)
	clk.Step(SnapshotDelay)
	looks("at the end", soon)
	looks("after it")
	x.Changed(ours)
	looks("after a new change", ours)
}
