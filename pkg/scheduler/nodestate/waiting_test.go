// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/waking"
)

// fullCluster is one node whose 8 GPUs are used by 8 pods, and two pods that wait for one, the first of
// which has a higher priority.
func fullCluster(t *testing.T) (c *waitingCluster, first, second *v1.Pod) {
	t.Helper()
	c = newWaitingCluster(t, 1, "dgx1-v100")
	c.prompt = true
	for range 8 {
		c.add(1, 9, nil)
	}
	c.rest()
	first, second = c.add(1, 5, nil), c.add(1, 0, nil)
	c.rest()
	return c, first, second
}

// wakes lets time pass without cycles, and counts how often each pod is woken.
func (c *waitingCluster) wakes(d time.Duration) map[string]int {
	out := map[string]int{}
	for range d / (100 * time.Millisecond) {
		c.clock.now = c.clock.now.Add(100 * time.Millisecond)
		woken := c.wakesNow()
		for _, pod := range woken {
			out[pod.Name]++
		}
	}
	return out
}

// TestChosenPodWakeUp: a pod that has an allocation is not woken in place of the next one.
func TestChosenPodWakeUp(t *testing.T) {
	c, first, second := fullCluster(t)
	running := c.bound()
	c.finish(running[0])
	if got := c.wakes(time.Second); got[first.Name] != 1 || got[second.Name] != 0 {
		t.Fatalf("one GPU came free: woken were %v, want %s alone", got, first.Name)
	}
	c.hold = 1 // every choice waits for another plugin
	c.try(first.UID)
	if got := c.wakes(10 * time.Second); len(got) > 0 {
		t.Errorf("the GPU is taken, by a pod that is not bound yet: woken were %v", got)
	}
	c.finish(running[1])
	if got := c.wakes(10 * time.Second); got[first.Name] != 0 || got[second.Name] == 0 {
		t.Errorf("a second GPU came free: woken were %v, want %s alone", got, second.Name)
	}
}

// TestUnendedAttempt: an attempt without an end gives way to the next.
func TestUnendedAttempt(t *testing.T) {
	tests := map[string]struct {
		after func(*waitingCluster, *v1.Pod) // the end of the woken pod
		late  uint64
	}{
		"it is never tried": {func(*waitingCluster, *v1.Pod) {}, 1},
		"another plugin refuses it after Reserve": {func(c *waitingCluster, pod *v1.Pod) {
			c.hold = 1
			c.try(pod.UID)
			c.wakes(time.Second)
			c.state.Allocations.Forget(pod.UID, "node-0")
		}, 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c, first, second := fullCluster(t)
			c.finish(c.bound()[0])
			c.wakes(time.Second)
			tc.after(c, first)
			if got := c.wakes(time.Minute); got[first.Name] != 0 || got[second.Name] == 0 {
				t.Errorf("woken were %v, want %s alone: %s had its turn", got, second.Name, first.Name)
			}
			if got := c.state.Waiting.waker.Counts().Late; got < tc.late {
				t.Errorf("%d were late, want %d", got, tc.late)
			}
		})
	}
}

// TestGoneBeforeRefusal: a pod that is gone before its refusal does not wait.
func TestGoneBeforeRefusal(t *testing.T) {
	tests := map[string]struct {
		during    func(*waitingCluster, *v1.Pod) // during the cycle in which the pod fits no node
		wantWaits bool
	}{
		"nothing":   {func(*waitingCluster, *v1.Pod) {}, true},
		"deleted":   {func(c *waitingCluster, pod *v1.Pod) { c.remove(pod.UID) }, false},
		"made anew": {func(c *waitingCluster, pod *v1.Pod) { c.remove(pod.UID); c.add(1, 5, nil).Name = pod.Name }, false},
		"bound":     {func(c *waitingCluster, pod *v1.Pod) { c.change(pod, func(p *v1.Pod) { p.Spec.NodeName = "node-0" }) }, false},
		"on its way": {func(c *waitingCluster, pod *v1.Pod) {
			c.change(pod, func(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{} })
		}, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c, _, _ := fullCluster(t)
			pod := c.add(1, 5, nil)
			tc.during(c, pod)
			c.state.Waiting.Add(&waking.RefusedPod{Pod: pod, Demand: *demandOf(t, pod)})
			if got, _ := c.state.Waiting.Gated(pod); got != tc.wantWaits {
				t.Errorf("on the list: %t, want %t", got, tc.wantWaits)
			}
		})
	}
}

// change updates a pod in the informer.
func (c *waitingCluster) change(pod *v1.Pod, f func(*v1.Pod)) {
	next := pod.DeepCopy()
	f(next)
	c.store[pod.UID] = next
	c.state.handlers.podEvent(nil, next)
}

// crowded returns a full node and this number of pods that wait for it.
func crowded(t *testing.T, pods int) (c *waitingCluster, waiting []*v1.Pod) {
	t.Helper()
	c, _, _ = fullCluster(t)
	for range pods {
		waiting = append(waiting, c.add(1, 0, nil))
	}
	c.rest()
	c.retries = true
	return c, waiting
}

// TestQueueRetry: a pod that the queue wants to try while it is gated, for a new node perhaps, is tried
// soon: the reason that it shows may be outdated.
func TestQueueRetry(t *testing.T) {
	tests := map[string]struct {
		others int
		judged bool // the waker has judged the pod before the queue wants it
	}{
		"before the waker has looked":            {others: 2},
		"after it has":                           {others: 2, judged: true},
		"before it has looked at any of a crowd": {others: 400},
		"beside a crowd":                         {others: 400, judged: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c, _ := crowded(t, tc.others)
			c.clock.now = c.clock.now.Add(waking.RetryAfter) // all may be tried again
			pod := c.add(1, 0, nil)
			c.queue = nil
			c.try(pod.UID)
			if tc.judged {
				c.wakesNow()
			}
			if gated, _ := c.state.Waiting.Gated(pod); !gated {
				t.Fatal("the node is full, and the queue may try the pod")
			}
			if got := c.wakes(3 * time.Second); got[pod.Name] == 0 {
				t.Errorf("%d others were woken within 3 s, and not %s", len(got), pod.Name)
			}
		})
	}
}

// TestQueueRetryFairness: some pods are wanted by the queue again and again, and the others are tried all
// the same, regardless of their number.
func TestQueueRetryFairness(t *testing.T) {
	tests := map[string]struct{ pods, wanted int }{
		"a few":          {pods: 50, wanted: 10},
		"a few hundred":  {pods: 280, wanted: 10},
		"a thousand":     {pods: 1500, wanted: 10},
		"more than that": {pods: 3000, wanted: 5},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c, pods := crowded(t, tc.pods)
			start, tried := c.clock.now, map[types.UID]time.Time{}
			longest, longestWanted := time.Duration(0), time.Duration(0)
			for range int(3 * waking.RetryWithin / time.Second) {
				c.clock.now = c.clock.now.Add(time.Second)
				for _, pod := range pods[:tc.wanted] {
					c.state.Waiting.Gated(pod)
				}
				woken := c.wakesNow()
				for _, pod := range woken {
					c.try(pod.UID)
					tried[pod.UID] = c.clock.now
				}
				for i, pod := range pods {
					last, ok := tried[pod.UID]
					if !ok {
						last = start
					}
					if alone := c.clock.now.Sub(last); i < tc.wanted {
						longestWanted = max(longestWanted, alone)
					} else {
						longest = max(longest, alone)
					}
				}
			}
			if limit := waking.RetryWithin + 15*time.Second; longest > limit {
				t.Errorf("one of %d pods had no try for %v, want %v at most", tc.pods, longest, limit)
			}
			if limit := 5 * time.Second; longestWanted > limit {
				t.Errorf("one of those whom the queue wanted tried had no try for %v, want %v at most", longestWanted, limit)
			}
		})
	}
}

// TestEarlierNodeAgent: the agent of an earlier node of the same name is ignored.
func TestEarlierNodeAgent(t *testing.T) {
	c := newWaitingCluster(t, 1, "dgx1-v100")
	look := func() bool { return c.state.PodDevices.Enforced("node-0") }
	if !look() {
		t.Error("an agent is heard of, and the node is not enforced")
	}
	l := lease(nodelease.AgentPrefix+"node-0", c.clock.now, time.Hour)
	l.OwnerReferences = []metav1.OwnerReference{{Kind: "Node", UID: "earlier"}}
	c.state.PodDevices.leases.Set(l, c.clock.now)
	if look() {
		t.Error("the agent is of an earlier node of this name, and the node counts as enforced")
	}
}
