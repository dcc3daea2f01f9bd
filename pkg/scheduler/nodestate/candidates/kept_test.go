// SPDX-License-Identifier: Apache-2.0

package candidates

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

var keyA, keyB = gangrequest.Key{Source: gangrequest.SourceAnnotation, Namespace: "ns", Name: "a"},
	gangrequest.Key{Source: gangrequest.SourceAnnotation, Namespace: "other", Name: "b"}

// TestKeptPlaces: kept places leave the rest of a node to others, and resources that are not kept to all.
func TestKeptPlaces(t *testing.T) {
	const gpu, nic = v1.ResourceName("nvidia.com/gpu"), v1.ResourceName("rdma/hca")
	made := time.Unix(1000, 0)
	var closed Closed
	closed.Keep(map[string][]*Kept{
		"n": {
			NewKept(keyA, Kept{Priority: 5, Made: made, Resource: gpu, Count: 2}, "which waits"),
			NewKept(keyA, Kept{Priority: 5, Made: made, Resource: nic, Count: 1}, "which waits"),
			NewKept(keyB, Kept{Priority: 7, Made: made.Add(time.Minute), Resource: gpu, Count: 1}, "which waits"),
		},
		"cpu": {
			NewKept(keyA, Kept{Priority: 5, Made: made, Resource: v1.ResourceCPU, Count: 3000}, "which waits"),
			NewKept(keyA, Kept{Priority: 5, Made: made, Resource: v1.ResourceMemory, Count: 100}, "which waits"),
			NewKept(keyA, Kept{Priority: 5, Made: made, Resource: v1.ResourceEphemeralStorage, Count: 10}, "which waits"),
		},
	})
	have := &framework.Resource{MilliCPU: 8000, Memory: 1000, EphemeralStorage: 100, ScalarResources: map[v1.ResourceName]int64{gpu: 8, nic: 2}}
	used := &framework.Resource{MilliCPU: 4000, Memory: 800, EphemeralStorage: 80, ScalarResources: map[v1.ResourceName]int64{gpu: 3, nic: 1}}
	scalars := func(gpus, nics int64) podrequest.Request {
		return podrequest.Request{Scalars: map[v1.ResourceName]int64{gpu: gpus, nic: nics}}
	}
	tests := map[string]struct {
		asks     podrequest.Request
		priority int32
		made     time.Duration
		change   func(*v1.Pod)
		node     string
		want     string // the gang whose place it would use
	}{
		"what is free beside both places":           {asks: scalars(2, 0), made: time.Hour},
		"one more":                                  {asks: scalars(3, 0), made: time.Hour, want: "gang ns/a"},
		"another resource":                          {asks: scalars(1, 1), made: time.Hour, want: "gang ns/a"},
		"no devices":                                {asks: podrequest.Request{MilliCPU: 4000, Memory: 200}, made: time.Hour},
		"a higher priority than one of them":        {asks: scalars(4, 0), priority: 6, made: time.Hour},
		"a higher priority, and more":               {asks: scalars(5, 0), priority: 6, made: time.Hour, want: "gang other/b"},
		"a higher priority than all":                {asks: scalars(5, 0), priority: 8, made: time.Hour},
		"older than one of them":                    {asks: scalars(3, 0), made: time.Minute},
		"as old as the first, which keeps none out": {asks: scalars(5, 0)},
		"another node":                              {asks: scalars(5, 0), made: time.Hour, node: "m"},
		"a node of which CPU is kept":               {asks: scalars(5, 1), made: time.Hour, node: "cpu"},
		"the CPU that is free beside it":            {asks: podrequest.Request{MilliCPU: 1000}, made: time.Hour, node: "cpu"},
		"CPU that is kept":                          {asks: podrequest.Request{MilliCPU: 1001}, made: time.Hour, node: "cpu", want: "gang ns/a"},
		"memory that is kept":                       {asks: podrequest.Request{Memory: 101}, made: time.Hour, node: "cpu", want: "gang ns/a"},
		"storage that is kept":                      {asks: podrequest.Request{EphemeralStorage: 11}, made: time.Hour, node: "cpu", want: "gang ns/a"},
		"one that is nominated for the node":        {asks: scalars(5, 0), made: time.Hour, change: func(p *v1.Pod) { p.Status.NominatedNodeName = "n" }},
		"one that is nominated for another node": {
			asks: scalars(5, 0), made: time.Hour, change: func(p *v1.Pod) { p.Status.NominatedNodeName = "m" }, want: "gang ns/a",
		},
		"a DaemonSet's": {asks: scalars(5, 0), made: time.Hour, change: func(p *v1.Pod) {
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
			use := &Use{Have: have, Used: used}
			if k, _ := closed.KeptFrom(pod, &tc.asks, node, use); k != nil {
				got = k.Gang
			}
			if got != tc.want {
				t.Errorf("it would take what is kept for %q, want %q", got, tc.want)
			}
			if n := testing.AllocsPerRun(100, func() {
				if k, _ := closed.KeptFrom(pod, &tc.asks, node, use); k != nil {
					_ = k.Why(pod.Namespace)
				}
			}); n != 0 {
				t.Errorf("a look allocates %v times", n)
			}
		})
	}
	gangs := func(gang string, priority int32, complete time.Duration) string {
		var out strings.Builder
		for _, k := range closed.KeptFromGang(gang, priority, made.Add(complete), "n") {
			out.WriteString(k.Gang + ";")
		}
		return out.String()
	}
	if got, want := gangs("gang ns/c", 5, time.Hour), "gang ns/a;gang ns/a;gang other/b;"; got != want {
		t.Errorf("kept from a younger gang: %q, want %q", got, want)
	}
	if got, want := gangs("gang ns/a", 6, time.Hour), "gang other/b;"; got != want {
		t.Errorf("kept from gang ns/a: %q, want %q", got, want)
	}
	if got := gangs("gang other/b", 6, time.Hour); got != "" {
		t.Errorf("kept from gang other/b: %q, want nothing", got)
	}
	closed.Keep(nil)
	if closed.Any() {
		t.Error("something is still kept")
	}
	if (*Closed)(nil).Any() {
		t.Error("nothing has kept places")
	}
}

// TestKeptWords: only the gang's own namespace gets its name.
func TestKeptWords(t *testing.T) {
	k := NewKept(keyA, Kept{Resource: "nvidia.com/gpu"}, "which has waited for long")
	for namespace, want := range map[string][2]string{
		"ns": {"nvidia.com/gpu of the node is kept for gang ns/a, which has waited for long", "gang ns/a, which has waited for long"},
		"other": {
			"nvidia.com/gpu of the node is kept for a gang of another namespace, which has waited for long",
			"a gang of another namespace, which has waited for long",
		},
	} {
		if got := [2]string{k.Why(namespace), k.For(namespace)}; got != want {
			t.Errorf("in namespace %s: %q, want %q", namespace, got, want)
		}
	}
}
