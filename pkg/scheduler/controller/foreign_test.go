// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nvtopo/nvtopo/internal/testobj"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate"
)

// owners judges as the State does, with agents as the test sets them.
type owners struct {
	*nodestate.PodDevices
	agents map[string]bool
}

func (o *owners) Enforced(node string) bool { return o.agents[node] }

// TestForeignAllocationEvents: pods get events about allocations that are not theirs. Each step has the
// pod's allocation at a time, and the expected event.
func TestForeignAllocationEvents(t *testing.T) {
	const (
		own      = `{"version":1,"node":"n","podUID":"uid","assumed":"2026-01-01T00:00:00Z","enforced":true}`
		copied   = `{"version":1,"node":"n","podUID":"other","assumed":"2026-01-01T00:00:00Z","enforced":true}`
		moved    = `{"version":1,"node":"m","podUID":"uid","assumed":"2026-01-01T00:00:00Z","enforced":true}`
		ofCopied = `Warning StaleAllocation annotation nvtopo.dev/allocation is of the pod with UID "other", this one's is "uid": it is ignored, and the pod counts by its request`
		ofMoved  = `Warning StaleAllocation annotation nvtopo.dev/allocation is of node "m", the pod is on "n": it is ignored, and the pod counts by its request`
	)
	type step struct {
		after time.Duration
		has   string
	}
	tests := map[string]struct {
		node  string
		agent bool
		steps []step
		want  []string
	}{
		"the pod's own allocation is nothing to speak of":   {node: "n", steps: []step{{0, own}, {time.Hour, own}}},
		"none is nothing to speak of":                       {node: "n", steps: []step{{0, ""}, {time.Hour, ""}}},
		"what cannot be read is told of elsewhere":          {node: "n", steps: []step{{0, "{"}, {time.Hour, "{"}}},
		"a pod that is not bound may carry anything":        {steps: []step{{0, copied}, {time.Hour, copied}}},
		"another pod's, that stays, is told of once":        {node: "n", steps: []step{{0, copied}, {4 * time.Minute, copied}, {time.Hour, copied}}, want: []string{ofCopied}},
		"another node's, that stays, is told of once":       {node: "n", steps: []step{{0, moved}, {4 * time.Minute, moved}, {time.Hour, moved}}, want: []string{ofMoved}},
		"one that is corrected in time is not told of":      {node: "n", steps: []step{{0, moved}, {2 * time.Minute, moved}, {10 * time.Second, own}, {time.Hour, own}}},
		"one that is gone and comes back has its time anew": {node: "n", steps: []step{{0, moved}, {30 * time.Second, own}, {2 * time.Minute, moved}, {2 * time.Minute, moved}}},
		"another mistake is told of as well":                {node: "n", steps: []step{{0, moved}, {4 * time.Minute, moved}, {0, copied}, {4 * time.Minute, copied}}, want: []string{ofMoved, ofCopied}},
		"where an agent lives it is the agent's to tell":    {node: "n", agent: true, steps: []step{{0, copied}, {time.Hour, copied}}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			clk := clocktesting.NewFakeClock(time.Unix(1_700_000_000, 0))
			recorder := events.NewFakeRecorder(10)
			store := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
			state := nodestate.New(nodestate.Config{Weights: nvtopo.DefaultWeights()}, clk)
			f := NewForeignReporter(&owners{PodDevices: state.PodDevices, agents: map[string]bool{"n": tt.agent}}, corelisters.NewPodLister(store), recorder, clk)
			for _, s := range tt.steps {
				clk.Step(s.after)
				pod := testobj.Pod("p").UID("uid").Node(tt.node).Obj()
				if s.has != "" {
					pod.Annotations = map[string]string{allocation.Key: s.has}
				}
				if err := store.Update(pod); err != nil {
					t.Fatal(err)
				}
				f.look(t.Context())
			}
			close(recorder.Events)
			var got []string
			for e := range recorder.Events {
				got = append(got, e)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}
