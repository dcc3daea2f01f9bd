// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
)

// releaser records whose reservations ended.
type releaser struct {
	idle
	released []types.UID
}

func (r *releaser) Release(uids []types.UID) { r.released = append(r.released, uids...) }

var testKey = gangrequest.Key{Source: gangrequest.SourcePodGroup, Namespace: "ns", Name: "g"}

// TestClaim ends, in several ways, the claim of a gang of two that waits for a victim, a minute at most.
func TestClaim(t *testing.T) {
	t.Parallel()
	both := []types.UID{"g-0", "g-1"}
	after := func(d time.Duration) func(*Gangs, *clocktesting.FakePassiveClock, []*v1.Pod) {
		return func(g *Gangs, clk *clocktesting.FakePassiveClock, _ []*v1.Pod) {
			clk.SetTime(clk.Now().Add(d))
			g.tick()
		}
	}
	for name, tc := range map[string]struct {
		then func(g *Gangs, clk *clocktesting.FakePassiveClock, pods []*v1.Pod)
		want []types.UID
	}{
		"its time is not over": {after(time.Minute - 1), nil},
		"its time is over":     {after(time.Minute), both},
		"a member is deleted": {
			func(g *Gangs, _ *clocktesting.FakePassiveClock, pods []*v1.Pod) { g.DeletePod(pods[1]) }, both,
		},
		"a member may not be scheduled any more": {func(g *Gangs, clk *clocktesting.FakePassiveClock, pods []*v1.Pod) {
			gated := pods[1].DeepCopy()
			gated.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "wait"}}
			g.SetPod(gated)
			after(time.Second)(g, clk, pods)
		}, both},
		"it is in vain": {
			func(g *Gangs, _ *clocktesting.FakePassiveClock, _ []*v1.Pod) { g.EndClaim(testKey, "no") }, both,
		},
		"another gang needs it": {
			func(g *Gangs, _ *clocktesting.FakePassiveClock, _ []*v1.Pod) { g.Yield(testKey, "no") }, both,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clk := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
			r := &releaser{}
			g := New(clk, Config{}, r)
			g.Serve(testProfile)
			g.SetGroup(testGroup(2, ""))
			pods := groupMembers(2, 0)
			for _, pod := range pods {
				g.SetPod(pod)
			}
			turn, _ := g.Begin(pods[0])
			claim := &Claim{Waits: []Located{{&v1.Pod{}, "n"}}, Until: clk.Now().Add(time.Minute)}
			for _, pod := range pods {
				claim.Places = append(claim.Places, Located{pod, "n"})
			}
			if turn.Why != "" || !g.Claim(&turn, claim) {
				t.Fatalf("nothing is held: %s", turn.Why)
			}
			tc.then(g, clk, pods)
			if diff := cmp.Diff(tc.want, r.released); diff != "" {
				t.Errorf("whose places are free (-want +got)\n%s", diff)
			}
			if expected := g.Expected().Len() > 0; expected != (tc.want == nil) {
				t.Errorf("the victim is expected to go: %t", expected)
			}
		})
	}
}

// TestClaimAboveMinimum: pods are evicted for a member above the minimum although one with other requests
// is tried as soon as no place was found for the first. Before, neither had pods evicted for it, and both
// were tried without end.
func TestClaimAboveMinimum(t *testing.T) {
	t.Parallel()
	clk := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	r := &releaser{}
	g := New(clk, Config{}, r)
	g.Serve(testProfile)
	g.SetGroup(testGroup(2, isWhole))
	pods := groupMembers(4, 2)
	for i := range pods[:2] { // the first two are bound
		pods[i].Spec.NodeName = "n"
	}
	for _, pod := range pods {
		g.SetPod(pod)
	}
	first, second := pods[2], pods[3]
	turn, _ := g.Begin(first)
	if turn.Why != "" || len(turn.Pods) != 1 || turn.Pods[0].UID != first.UID {
		t.Fatalf("the first one above the minimum: %q, its turn places %d", turn.Why, len(turn.Pods))
	}
	g.Wait(testKey, &Wait{Why: "no room", ForChange: true}) // PreFilter; then PostFilter:
	victim := []Located{{Pod: member("other", 1, "victim").Obj(), Node: "n"}}
	claim := &Claim{Places: []Located{{Pod: first, Node: "n"}}, Waits: victim, Until: clk.Now().Add(time.Minute), Because: "waits for a victim"}
	if !g.Claim(&turn, claim) {
		t.Fatal("nothing is held for the first one while its victim ends")
	}
	if turn, _ := g.Begin(second); turn.Why != claim.Because {
		t.Errorf("the other one begins meanwhile: %q", turn.Why)
	}
	g.round() // something changed: perhaps the victim is gone
	turn, _ = g.Begin(first)
	if turn.Why != "" || turn.Claim != claim || len(turn.Pods) != 1 || turn.Pods[0].UID != first.UID {
		t.Fatalf("after the victim has gone: %q, its turn places %v", turn.Why, turn.Pods)
	}
	g.Wait(testKey, &Wait{Why: claim.Because, Until: claim.Until, ForChange: true}) // it has not
	if why := g.Gate(second); why != claim.Because {
		t.Errorf("the other one has its turn while the victim ends: %q", why)
	}
	g.round()
	turn, _ = g.Begin(first)
	g.EndClaim(testKey, "")
	if !g.Hold(&turn, first, nil) {
		t.Error("the first one does not get the place of its victim")
	}
}
