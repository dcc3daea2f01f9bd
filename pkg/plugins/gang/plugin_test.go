// SPDX-License-Identifier: Apache-2.0

package gang_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	fwk "k8s.io/kube-scheduler/framework"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
)

// TestOneRackGang: a gang goes into one rack together.
func TestOneRackGang(t *testing.T) {
	t.Parallel()
	r := newTestEnv(t, 2, 4)
	pods := r.gang("g", 4, 8, nil)
	r.known(pods[0])
	cycles := make([]*cycle, len(pods))
	for i, pod := range pods {
		cycles[i] = r.cycle(pod)
		if !cycles[i].status.IsWait() {
			t.Fatalf("pod %s: %v, want to wait", pod.Name, cycles[i].status)
		}
		if !strings.HasPrefix(cycles[i].node, "node-1-") {
			t.Errorf("pod %s goes to %s, want the rack that holds all", pod.Name, cycles[i].node)
		}
		if i == 0 {
			for _, sibling := range pods[1:] {
				if !r.awake.has(sibling.Name) {
					t.Errorf("pod %s was not woken", sibling.Name)
				}
			}
			if got := len(r.held()); got != len(pods) {
				t.Errorf("%d entries, want one for each member: %v", got, r.held())
			}
		}
	}
	for _, pod := range pods {
		if status := r.fw.WaitOnPermit(t.Context(), pod); !status.IsSuccess() {
			t.Errorf("pod %s is not let through: %v", pod.Name, status)
		}
	}
	seen := map[string]bool{}
	for _, c := range cycles {
		seen[c.node] = true
	}
	if len(seen) != len(pods) {
		t.Errorf("whole nodes for %d members, got %v", len(pods), seen)
	}
}

// TestBesideWrites: members are bound one after the other without a pause, even while the greatest number
// of allocations is being written: each waited 200 ms, and gangs above 50 came late. The clock stands
// still.
func TestBesideWrites(t *testing.T) {
	t.Parallel()
	clk := clocktesting.NewFakeClock(time.Now())
	r := newTestEnvAt(t, clk, `{}`, 8, 4)
	const writing = 64 // as many as may be, see maxWriting of pkg/scheduler/nodestate
	large := r.gang("large", writing, 1, nil)
	r.known(large[0])
	for _, pod := range large {
		c := r.cycle(pod)
		if !c.status.IsWait() {
			t.Fatalf("pod %s: %v, want to wait", pod.Name, c.status)
		}
		r.state.Binder.Attempt(pod.UID, c.node).Announce()
	}
	small := r.gang("small", 4, 8, nil)
	r.known(small[0])
	for _, pod := range small {
		var c *cycle
		done := make(chan struct{})
		go func() {
			defer close(done)
			c = r.cycle(pod)
		}()
		select {
		case <-done:
		case <-time.After(2 * time.Minute):
			clk.Step(time.Minute) // which ends its wait
			<-done
			t.Fatalf("pod %s waits until others are written", pod.Name)
		}
		if !c.status.IsWait() {
			t.Errorf("pod %s: %v, want to wait", pod.Name, c.status)
		}
	}
}

// TestIncompleteGang: an incomplete gang is kept out of the queue.
func TestIncompleteGang(t *testing.T) {
	t.Parallel()
	r := newTestEnv(t, 4)
	pods := r.gang("g", 4, 8, nil)[:0]
	for i := range 3 {
		pods = append(pods, r.create(member("h", 4, i, 8).Obj()))
	}
	for _, pod := range pods {
		testkit.Soon(t, "pod "+pod.Name+" is refused for want of members", func() bool {
			c := r.cycle(pod)
			return c.status.Code() == fwk.UnschedulableAndUnresolvable && strings.Contains(c.status.Message(), "3 of 4")
		})
	}
	if got := r.held(); len(got) > 0 {
		t.Errorf("held: %v", got)
	}
}

func TestSmallRequiredRack(t *testing.T) {
	t.Parallel()
	r := newTestEnv(t, 3, 3)
	pods := r.gang("g", 4, 8, map[string]string{gangrequest.RequiredKey: "rack"})
	r.known(pods[0])
	c := r.cycle(pods[0])
	if c.status.Code() != fwk.UnschedulableAndUnresolvable || !strings.Contains(c.status.Message(), "rack: 3 of 4") {
		t.Errorf("%v, want a refusal with what is missing", c.status)
	}
	if got := r.held(); len(got) > 0 {
		t.Errorf("held: %v", got)
	}
}

// TestAttemptEnd: an attempt ends for all members.
func TestAttemptEnd(t *testing.T) {
	t.Parallel()
	r := newTestEnv(t, 4)
	pods := r.gang("g", 3, 8, nil)
	r.known(pods[0])
	first, second := r.cycle(pods[0]), r.cycle(pods[1])
	if !first.status.IsWait() || !second.status.IsWait() {
		t.Fatalf("%v and %v, want both to wait", first.status, second.status)
	}
	r.fw.RejectWaitingPod(pods[1].UID)
	if status := r.fw.WaitOnPermit(t.Context(), pods[1]); status.IsSuccess() {
		t.Fatal("a rejected pod is let through")
	}
	r.fw.RunReservePluginsUnreserve(t.Context(), second.state, pods[1], second.node)
	if status := r.fw.WaitOnPermit(t.Context(), pods[0]); status.IsSuccess() {
		t.Error("the other waiter is let through")
	}
	r.fw.RunReservePluginsUnreserve(t.Context(), first.state, pods[0], first.node)
	if diff := cmp.Diff([]string(nil), r.held()); diff != "" {
		t.Errorf("held after the end (-want,+got)\n%s", diff)
	}
	if c := r.cycle(pods[2]); c.status.IsSuccess() || c.status.IsWait() {
		t.Errorf("a member begins at once after a failure: %v", c.status)
	}
}
