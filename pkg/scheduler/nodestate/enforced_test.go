// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"testing"
	"time"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

func TestAllocationProof(t *testing.T) {
	cases := map[string]struct {
		agent      bool // it is alive
		unenforced bool // the allocation is not marked as enforced
		recorded   []int
		removed    bool // its NodeGPUTopology
		unsynced   bool // not all graphs are known
		unreadable bool // there is an object that cannot be read
		want       bool
	}{
		"an agent is there, and will say":          {agent: true},
		"it said so before it went":                {recorded: []int{3, 1}},
		"it went before it could say":              {want: true},
		"it said otherwise before it went":         {recorded: []int{1, 2}, want: true},
		"it had not yet seen all":                  {recorded: []int{1}, want: true},
		"the allocation does not say it was given": {unenforced: true},
		// A roll-back that removed the agent and the object within three minutes left "enforced":true for ever.
		"its words went with the object":           {removed: true, recorded: []int{3, 1}, want: true},
		"the object is gone, and an agent is here": {removed: true, agent: true},
		"the object may be there":                  {removed: true, unsynced: true},
		"the object is there, and nobody reads it": {removed: true, unreadable: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := newTestEnv(t, "dgx1-v100")
			if !tc.agent {
				r.PodDevices.leases.Drop(nodelease.AgentPrefix + "n")
			} else {
				r.PodDevices.leases.Set(lease(nodelease.AgentPrefix+"n", r.clock.now, 2*time.Minute), r.clock.now)
			}
			pod := on(t, r.State, schedtest.Pod("p").GPUs(2).Obj(), "n", 1, 3)
			a, err := allocation.Parse(pod.Annotations[allocation.Key])
			if err != nil {
				t.Fatal(err)
			}
			a.Enforced = !tc.unenforced
			if pod.Annotations[allocation.Key], err = a.Encode(); err != nil {
				t.Fatal(err)
			}
			if tc.recorded != nil {
				r.record(t, pod.UID, tc.recorded...)
			}
			r.Lists.in.Store(!tc.unsynced)
			if tc.removed && !r.Graphs.Remove("n", "topology-n") {
				t.Fatal("the graph was not there")
			}
			if tc.unreadable {
				obj := topologyOf(t, "n", "dgx1-v100")
				obj.ResourceVersion, obj.Spec.LinkKinds[0].Class = "9", "NVLink9"
				if _, err := r.Graphs.Apply(obj); err == nil || r.Nodes.Node("n") != nil {
					t.Fatalf("an object that cannot be read: %v", err)
				}
			}
			if got := r.PodDevices.Unproven(pod) != nil; got != tc.want {
				t.Errorf("unproven %t, want %t", got, tc.want)
			}
		})
	}
}
