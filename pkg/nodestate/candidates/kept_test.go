// SPDX-License-Identifier: Apache-2.0

package candidates

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/nvtopo/nvtopo/internal/schedtest"
)

// TestKeptPlaces: kept places leave the rest of a node to others.
func TestKeptPlaces(t *testing.T) {
	const gpu, nic = v1.ResourceName("nvidia.com/gpu"), v1.ResourceName("rdma/hca")
	made := time.Unix(1000, 0)
	var closed Closed
	closed.Keep(map[string][]*Kept{"n": {
		{Gang: "gang ns/a", Priority: 5, Made: made, Resource: gpu, Count: 2},
		{Gang: "gang ns/a", Priority: 5, Made: made, Resource: nic, Count: 1},
		{Gang: "gang ns/b", Priority: 7, Made: made.Add(time.Minute), Resource: gpu, Count: 1},
	}})
	have := &framework.Resource{ScalarResources: map[v1.ResourceName]int64{gpu: 8, nic: 2}}
	used := &framework.Resource{ScalarResources: map[v1.ResourceName]int64{gpu: 3, nic: 1}}
	asks := func(n int64) map[v1.ResourceName]int64 { return map[v1.ResourceName]int64{gpu: n} }
	tests := map[string]struct {
		requests map[v1.ResourceName]int64
		priority int32
		made     time.Duration
		change   func(*v1.Pod)
		node     string
		want     string // whose place it would take
	}{
		"what is free beside both places":           {requests: asks(2), made: time.Hour},
		"one more":                                  {requests: asks(3), made: time.Hour, want: "gang ns/a"},
		"another resource":                          {requests: map[v1.ResourceName]int64{gpu: 1, nic: 1}, made: time.Hour, want: "gang ns/a"},
		"no devices":                                {made: time.Hour},
		"a higher priority than one of them":        {requests: asks(4), priority: 6, made: time.Hour},
		"a higher priority, and more":               {requests: asks(5), priority: 6, made: time.Hour, want: "gang ns/b"},
		"a higher priority than all":                {requests: asks(5), priority: 8, made: time.Hour},
		"older than one of them":                    {requests: asks(3), made: time.Minute},
		"as old as the first, which keeps none out": {requests: asks(5)},
		"another node":                              {requests: asks(5), made: time.Hour, node: "m"},
		"one that is nominated for the node":        {requests: asks(5), made: time.Hour, change: func(p *v1.Pod) { p.Status.NominatedNodeName = "n" }},
		"a DaemonSet's": {requests: asks(5), made: time.Hour, change: func(p *v1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Controller: new(true)}}
		}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			pod := schedtest.Pod("p").Priority(tc.priority).Created(made.Add(tc.made)).Obj()
			if tc.change != nil {
				tc.change(pod)
			}
			node, got := tc.node, ""
			if node == "" {
				node = "n"
			}
			if k := closed.KeptFrom(pod, tc.requests, node, have, used); k != nil {
				got = k.Gang
			}
			if got != tc.want {
				t.Errorf("it would take what is kept for %q, want %q", got, tc.want)
			}
			if n := testing.AllocsPerRun(100, func() { closed.KeptFrom(pod, tc.requests, node, have, used) }); n != 0 {
				t.Errorf("a look allocates %v times", n)
			}
		})
	}
	if !closed.KeptFromGang("gang ns/a", 6, made.Add(time.Hour), "n") || closed.KeptFromGang("gang ns/b", 6, made.Add(time.Hour), "n") {
		t.Error("only b's place is kept from gangs of that priority, and not from b itself")
	}
	closed.Keep(nil)
	if closed.Any() {
		t.Error("something is still kept")
	}
}
