// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
)

// TestMemberWait: a PodGroup's scheduleTimeoutSeconds is how long members that have their places wait for
// the others before the gang runs. Before, a gang whose last member came late was ended after 10 s in any
// case.
func TestMemberWait(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		seconds *int32 // the PodGroup's
		bound   int    // members that have nodes
		want    time.Duration
	}{
		"a group that does not say":               {want: minAttempt},
		"a group that gives its members longer":   {seconds: new(int32(60)), want: time.Minute},
		"a group that gives them too short":       {seconds: new(int32(3)), want: minAttempt},
		"the rest of a gang that runs":            {seconds: new(int32(60)), bound: 1, want: minAttempt},
		"places are not held for longer than ten": {seconds: new(int32(3600)), want: 10 * time.Minute},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clk := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
			r := &rejecter{told: map[types.UID]int{}}
			g := New(clk, Config{}, r)
			g.Serve(testProfile)
			group := testGroup(3, "")
			group.Spec.ScheduleTimeoutSeconds = tc.seconds
			g.SetGroup(group)
			pods := groupMembers(3, tc.bound)
			for _, pod := range pods {
				g.SetPod(pod)
			}
			first := pods[tc.bound]
			turn, _ := g.Begin(first)
			if !g.Hold(&turn, first, nil) {
				t.Fatalf("the gang is not held: %s", turn.Why)
			}
			// kube-scheduler ends the wait only after the attempt, and after 15 minutes at the latest.
			if wait, ok := g.Permit(first.UID); !ok || wait <= tc.want || wait > 15*time.Minute {
				t.Errorf("the first member may wait at Permit: %t, for %v, want for longer than %v and no longer than 15m", ok, wait, tc.want)
			}
			clk.SetTime(time.Unix(0, 0).Add(tc.want))
			g.tick()
			if n := r.told[first.UID]; n != 0 {
				t.Errorf("after %v the first member was told %d times to end", tc.want, n)
			}
			clk.SetTime(time.Unix(0, 0).Add(tc.want + time.Second))
			g.tick()
			if n := r.told[first.UID]; n == 0 {
				t.Errorf("a second after %v the first member still waits", tc.want)
			}
		})
	}
}
