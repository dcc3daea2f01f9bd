// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
)

// oneMember returns the gangs of a scheduler with one gang of one pod, and their clock.
func oneMember() (*clocktesting.FakePassiveClock, *Gangs, *v1.Pod) {
	clk := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	g := New(clk, Config{}, idle{})
	g.Serve(testProfile)
	pod := member("g", 1, "p").Obj()
	g.SetPod(pod)
	return clk, g, pod
}

// TestPauseGrowth: the pause grows while plans cannot be held. Before, a plan was made and refused each
// second, for ever.
func TestPauseGrowth(t *testing.T) {
	t.Parallel()
	clk, g, pod := oneMember()
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

// TestRefusalExpiry: nodes that another plugin refused are tried again after a minute without another
// refusal, though they did not change. The cause may be no part of the node, such as a nomination. Until
// then all are left out, or a gang would try the same few of many again and again.
func TestRefusalExpiry(t *testing.T) {
	t.Parallel()
	clk, g, pod := oneMember()
	refused, last := map[Refusal]int64{}, clk.Now()
	for i := range 5 * maxTries {
		if i > 0 && i%maxTries == 0 { // the gang waits, and is tried again
			clk.SetTime(clk.Now().Add(maxPause))
			g.tick()
		}
		if turn, _ := g.Begin(pod); len(turn.Refused) != i || turn.Why != "" {
			t.Fatalf("try %d leaves out %d nodes (%q), want all that refused", i, len(turn.Refused), turn.Why)
		}
		refused[Refusal{Shape: "s", Node: fmt.Sprint("n", i)}], last = 7, clk.Now()
		g.RefusedBy(pod, Refusal{Shape: "s", Node: fmt.Sprint("n", i)}, 7, "no")
	}
	for _, tc := range []struct {
		after time.Duration // since the last refusal
		want  map[Refusal]int64
	}{
		{refusedFor - time.Nanosecond, refused},
		{refusedFor, map[Refusal]int64{}},
	} {
		clk.SetTime(last.Add(tc.after))
		g.tick()
		turn, _ := g.Begin(pod)
		if diff := cmp.Diff(tc.want, turn.Refused); diff != "" || turn.Why != "" {
			t.Errorf("after %v the cycle may not go on (%q), or it leaves out other nodes (-want,+got)\n%s", tc.after, turn.Why, diff)
		}
	}
}
