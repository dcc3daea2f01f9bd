// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nvtopo/nvtopo/internal/schedtest"
)

// TestLargeGangReads: a large gang is read seldom. Before, each of n members above the minimum had all of
// them read again.
func TestLargeGangReads(t *testing.T) {
	const pods, minimum = 3000, 3
	g := New(clocktesting.NewFakeClock(time.Unix(0, 0)), Config{}, idle{})
	g.queue.profiles[testProfile] = true
	var first *v1.Pod
	for i := range pods {
		pod := member("large", minimum, fmt.Sprintf("p-%d", i)).Obj()
		if i == 0 {
			first = pod
		}
		g.ChangePod(nil, pod)
		g.Gate(pod)
	}
	for key, x := range g.queue.gangs {
		if x.events > maxEventReads {
			t.Errorf("%v: %d members were read for %d events, want %d at most", key, x.events, pods, maxEventReads)
		}
	}
	if turn, ok := g.Begin(first); !ok || turn.Why != "" || turn.Gang.Members.Count() != pods || len(turn.Pods) != minimum {
		t.Errorf("a cycle rests on %d members and places %d, want %d and %d: %s", turn.Gang.Members.Count(), len(turn.Pods), pods, minimum, turn.Why)
	}
}

// TestLargestGangReads: a gang with more members than are read for events in a second is still read.
func TestLargestGangReads(t *testing.T) {
	const pods = maxEventReads + 1000
	g := New(clocktesting.NewFakeClock(time.Unix(0, 0)), Config{}, idle{})
	g.queue.profiles[testProfile] = true
	var last *v1.Pod
	for i := range pods {
		last = member("large", pods, fmt.Sprintf("p-%d", i)).Obj()
		g.ChangePod(nil, last)
	}
	g.tick()
	for key, x := range g.queue.gangs {
		g.mu.Lock()
		why := g.queue.incomplete(x)
		g.mu.Unlock()
		if why != "" {
			t.Errorf("%v with all %d members waits: %s", key, pods, why)
		}
	}
	last = last.DeepCopy()
	last.DeletionTimestamp = new(metav1.Now())
	g.SetPod(last)
	g.tick()
	if why := g.Gate(last); why == "" {
		t.Error("a gang that lost a member begins")
	}
}

// TestSmallerRun: a run that needs fewer members begins when it has them, also if it was made under the
// name of an earlier one while that was deleted, so that there were always some pods.
func TestSmallerRun(t *testing.T) {
	const earlier, begun, later = 8, 5, 4 // members, of which this many were made
	g := New(clocktesting.NewFakeClock(time.Unix(0, 0)), Config{}, idle{})
	g.Serve(testProfile)
	var old, pods []*v1.Pod
	for i := range begun {
		old = append(old, member("train", earlier, fmt.Sprintf("old-%d", i)).Obj())
		g.SetPod(old[i])
		g.Gate(old[i])
	}
	for i := range max(begun, later) {
		if i < later {
			pods = append(pods, member("train", later, fmt.Sprintf("new-%d", i)).Obj())
			g.SetPod(pods[i])
			g.Gate(pods[i])
		}
		if i < begun {
			g.DeletePod(old[i])
		}
	}
	g.tick()
	begins := 0
	for _, pod := range pods {
		if why := g.Gate(pod); why == "" {
			begins++
		} else if !strings.Contains(why, "another member") {
			t.Error(why)
		}
	}
	if begins != 1 {
		t.Errorf("%d members begin, want 1", begins)
	}
}

// plain returns an ordinary pod, of a Deployment.
func plain() *v1.Pod {
	return schedtest.Pod("web-7c5ddbdf54-x2x9z").Namespace("ns").UID("u").Label("app", "web").Label("pod-template-hash", "7c5ddbdf54").
		Annotation("prometheus.io/scrape", "true").Obj()
}

// TestLockContention: other pods need no lock. Before, each event of any pod waited for the lock of
// gangs.
func TestLockContention(t *testing.T) {
	g := New(clocktesting.NewFakeClock(time.Unix(0, 0)), Config{}, idle{})
	pod := plain()
	g.mu.Lock() // a caller that takes it now waits for ever
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
	g, pod := New(clocktesting.NewFakeClock(time.Unix(0, 0)), Config{}, idle{}), plain()
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
