// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"testing"
	"time"
)

func TestWhatProvesAnAllocation(t *testing.T) {
	cases := map[string]struct {
		agent      bool // one is heard of
		unenforced bool // the allocation does not say that kubelet was made to
		recorded   []int
		want       bool
	}{
		"an agent is there, and will say":          {agent: true},
		"it said so before it went":                {recorded: []int{3, 1}},
		"it went before it could say":              {want: true},
		"it said otherwise before it went":         {recorded: []int{1, 2}, want: true},
		"it had not yet seen all":                  {recorded: []int{1}, want: true},
		"the allocation does not say it was given": {unenforced: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, "dgx1-v100")
			if !tc.agent {
				r.leases.drop(AgentLeasePrefix + "n")
			} else {
				r.leases.set(lease(AgentLeasePrefix+"n", r.clock.now, 2*time.Minute), r.clock.now)
			}
			pod := on(t, r.State, gpuPod("p", 2), "n", 1, 3)
			a, err := ParseAllocation(pod.Annotations[AllocationKey])
			if err != nil {
				t.Fatal(err)
			}
			a.Enforced = !tc.unenforced
			if pod.Annotations[AllocationKey], err = a.Encode(); err != nil {
				t.Fatal(err)
			}
			if tc.recorded != nil {
				r.record(t, pod.UID, tc.recorded...)
			}
			if got := r.Unproven(pod) != nil; got != tc.want {
				t.Errorf("unproven %t, want %t", got, tc.want)
			}
		})
	}
}
