// SPDX-License-Identifier: Apache-2.0

package candidates

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/internal/schedtest"
)

// TestClosedNodes: closed nodes keep younger pods out.
func TestClosedNodes(t *testing.T) {
	complete := time.Unix(1000, 0)
	var closed Closed
	closure := &Closure{Gang: "gang ns/g", Priority: 5, Complete: complete}
	closed.Set(map[string]*Closure{"n": closure})
	pod := func(priority int32, made time.Duration, change func(*v1.Pod)) *v1.Pod {
		p := schedtest.Pod("p").Priority(priority).Created(complete.Add(made)).Obj()
		if change != nil {
			change(p)
		}
		return p
	}
	tests := map[string]struct {
		pod  *v1.Pod
		node string
		want bool
	}{
		"a younger one of equal priority":  {pod(5, time.Second, nil), "n", true},
		"a younger one of lower priority":  {pod(0, time.Second, nil), "n", true},
		"a younger one of higher priority": {pod(6, time.Second, nil), "n", false},
		"one that is as old":               {pod(5, 0, nil), "n", false},
		"an older one of lower priority":   {pod(0, -time.Second, nil), "n", false},
		"another node":                     {pod(5, time.Second, nil), "m", false},
		"a DaemonSet's": {pod(5, time.Second, func(p *v1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Controller: new(true)}}
		}), "n", false},
		"one that is nominated for the node":    {pod(5, time.Second, func(p *v1.Pod) { p.Status.NominatedNodeName = "n" }), "n", false},
		"one that is nominated for another one": {pod(5, time.Second, func(p *v1.Pod) { p.Status.NominatedNodeName = "m" }), "n", true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := closed.To(tc.pod, tc.node) == closure; got != tc.want {
				t.Errorf("kept out: %t, want %t", got, tc.want)
			}
			if n := testing.AllocsPerRun(100, func() { closed.To(tc.pod, tc.node) }); n != 0 {
				t.Errorf("a look allocates %v times", n)
			}
		})
	}
	closed.Set(nil)
	if closed.Any() || closed.To(tests["a younger one of equal priority"].pod, "n") != nil {
		t.Error("a node is still closed")
	}
	if (*Closed)(nil).Any() {
		t.Error("nothing has closed nodes")
	}
}
