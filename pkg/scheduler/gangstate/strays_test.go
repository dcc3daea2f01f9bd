// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
)

// rejecter records the rejected pods.
type rejecter struct {
	idle
	told map[types.UID]int
}

func (r *rejecter) Reject(uids []types.UID, _ string) {
	for _, uid := range uids {
		r.told[uid]++
	}
}

// TestGoneMemberRefusal: a member that is gone is rejected again. A member that is deleted between its
// Permit and its joining the list of waiting pods was rejected once, without effect. Its GPUs were kept
// until the wait was over.
func TestGoneMemberRefusal(t *testing.T) {
	t.Parallel()
	clk := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	r := &rejecter{told: map[types.UID]int{}}
	g := New(clk, Config{}, r)
	g.Serve(testProfile)
	g.SetGroup(testGroup(3, ""))
	pods := groupMembers(3, 0)
	for _, pod := range pods {
		g.SetPod(pod)
	}
	turn, _ := g.Begin(pods[0])
	if !g.Hold(&turn, pods[0], nil) {
		t.Fatalf("the gang is not held: %s", turn.Why)
	}
	if _, ok := g.Permit(pods[0].UID); !ok {
		t.Fatal("the first member may not wait")
	}
	g.DeletePod(pods[0])
	for second := range int64(3) {
		clk.SetTime(time.Unix(second+1, 0))
		g.tick()
	}
	if got := r.told[pods[0].UID]; got != 4 {
		t.Errorf("the member was told %d times in 3 seconds, want once and each second", got)
	}
	if n := r.told[pods[1].UID]; n != 0 {
		t.Errorf("a member that never came was told %d times", n)
	}
	g.Unreserved(pods[0].UID)
	before := r.told[pods[0].UID]
	g.tick()
	if r.told[pods[0].UID] != before {
		t.Error("the member is told after it has ended")
	}
}
