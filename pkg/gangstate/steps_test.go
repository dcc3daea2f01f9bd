// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nvtopo/nvtopo/pkg/gangrequest"
)

// TestPauseGrowth: the pause grows while plans cannot be held. Each second a plan was made and
// refused, for ever.
func TestPauseGrowth(t *testing.T) {
	t.Parallel()
	clk := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	g := New(clk)
	g.Serve(testProfile, idle{})
	pod := member("g", 1, "p").Obj()
	g.SetPod(pod)
	key, _ := gangrequest.KeyOf(pod)
	for i, want := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
		if why := g.Gate(pod); why != "" {
			t.Fatalf("before plan %d: %s", i, why)
		}
		g.NotHeld(key, "no")
		until := clk.Now().Add(want * time.Second)
		clk.SetTime(until.Add(-time.Nanosecond))
		g.tick()
		if g.Gate(pod) != "no" {
			t.Errorf("after plan %d the pause is less than %d s", i, want)
		}
		clk.SetTime(until)
		g.tick()
	}
}

// TestRefusalExpiry: a node that another plugin refused is tried again after a minute, though
// nothing about the node changed. What refused it may be no part of the node, such as a nomination.
func TestRefusalExpiry(t *testing.T) {
	t.Parallel()
	clk := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	g := New(clk)
	g.Serve(testProfile, idle{})
	pod := member("g", 1, "p").Obj()
	g.SetPod(pod)
	first, second := Refusal{Shape: "s", Node: "n1"}, Refusal{Shape: "s", Node: "n2"}
	g.RefusedBy(pod, first, 7, "no")
	clk.SetTime(clk.Now().Add(refusedFor / 2))
	g.RefusedBy(pod, second, 8, "no")
	for _, tc := range []struct {
		after time.Duration // since the first refusal
		want  map[Refusal]int64
	}{
		{refusedFor - time.Nanosecond, map[Refusal]int64{first: 7, second: 8}},
		{refusedFor, map[Refusal]int64{}},
	} {
		clk.SetTime(time.Unix(0, 0).Add(tc.after))
		turn, _ := g.Begin(pod)
		if diff := cmp.Diff(tc.want, turn.Refused); diff != "" || turn.Why != "" {
			t.Errorf("after %v the cycle may not go on (%q), or it leaves out other nodes (-want,+got)\n%s", tc.after, turn.Why, diff)
		}
	}
}
