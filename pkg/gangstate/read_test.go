// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nvtopo/nvtopo/internal/schedtest"
)

// TestLargeGangReads: a large gang is read seldom. Each of n members above the minimum had all of
// them read again.
func TestLargeGangReads(t *testing.T) {
	const pods, minimum = 3000, 3
	g := New(clocktesting.NewFakeClock(time.Unix(0, 0)))
	g.profiles[testProfile] = true
	var first *v1.Pod
	for i := range pods {
		pod := member("large", minimum, fmt.Sprintf("p-%d", i)).Obj()
		if i == 0 {
			first = pod
		}
		g.ChangePod(nil, pod)
		g.Gate(pod)
	}
	for key, x := range g.gangs {
		if x.events > maxEventReads {
			t.Errorf("%v: %d members were read for %d events, want %d at most", key, x.events, pods, maxEventReads)
		}
	}
	if turn, ok := g.Begin(first); !ok || turn.Why != "" || turn.Gang.Members.Count() != pods || len(turn.Pods) != minimum {
		t.Errorf("a cycle rests on %d members and places %d, want %d and %d: %s", turn.Gang.Members.Count(), len(turn.Pods), pods, minimum, turn.Why)
	}
}

// plain is a pod as most are, of a Deployment.
func plain() *v1.Pod {
	return schedtest.Pod("web-7c5ddbdf54-x2x9z").Namespace("ns").UID("u").Label("app", "web").Label("pod-template-hash", "7c5ddbdf54").
		Annotation("prometheus.io/scrape", "true").Obj()
}

// TestLockContention: other pods need no lock. Each event of any pod waited for the lock of gangs.
func TestLockContention(t *testing.T) {
	g := New(clocktesting.NewFakeClock(time.Unix(0, 0)))
	pod := plain()
	g.mu.Lock() // whoever takes it now waits for ever
	defer g.mu.Unlock()
	if n := testing.AllocsPerRun(100, func() { notMember(g, pod) }); n != 0 {
		t.Errorf("a pod that is no member costs %v allocations", n)
	}
}

func notMember(g *Gangs, pod *v1.Pod) {
	g.ChangePod(pod, pod)
	g.Gate(pod)
	g.Begin(pod)
	g.DeletePod(pod)
}

func BenchmarkNoMember(b *testing.B) {
	g, pod := New(clocktesting.NewFakeClock(time.Unix(0, 0))), plain()
	for name, does := range map[string]func(){
		"event": func() { g.ChangePod(pod, pod) }, "PreEnqueue": func() { g.Gate(pod) }, "PreFilter": func() { g.Begin(pod) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				does()
			}
		})
	}
}
