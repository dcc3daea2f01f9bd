// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"
)

// TestLastMemberElection: the member that would come last is elected. After a restart the members of many
// gangs are in the queue as they come, mixed. The first of each held its places until the last of the
// last had come, longer than an attempt may last.
func TestLastMemberElection(t *testing.T) {
	t.Parallel()
	important := int32(1)
	for name, tc := range map[string]struct {
		came []string // members
		high string   // has a higher priority than the others
		want string
	}{
		"who came last":                              {came: []string{"g-1", "g-2", "g-0"}, want: "g-0"},
		"of the lowest priority":                     {came: []string{"g-1", "g-2", "g-0"}, high: "g-0", want: "g-2"},
		"who came last, though its rank is the last": {came: []string{"g-0", "g-1", "g-2"}, want: "g-2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newTestEnv(t, 3, 0, false)
			for _, pod := range tc.came {
				m := member("g", len(tc.came), pod).Obj()
				if pod == tc.high {
					m.Spec.Priority = &important
				}
				r.set(m)
			}
			for _, pod := range tc.came {
				open := r.gangs.Gate(r.pods[pod]) == ""
				if open != (pod == tc.want) {
					t.Errorf("%s may come to the queue: %t, want %s alone to", pod, open, tc.want)
				}
			}
		})
	}
}

// TestOrderOfGangs: gangs are ordered by priority, then age, then name.
func TestOrderOfGangs(t *testing.T) {
	t.Parallel()
	clk := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	g := New(clk, Config{}, idle{})
	g.Serve(testProfile)
	for _, gang := range []struct {
		name     string
		priority int32
		since    int64
	}{{"old", 0, 0}, {"young", 0, 1}, {"b", 5, 2}, {"a", 5, 2}, {"high", 7, 3}} {
		clk.SetTime(time.Unix(gang.since, 0))
		g.SetPod(member(gang.name, 1, gang.name).Priority(gang.priority).Obj())
	}
	var got []string
	for _, key := range g.queue.keys(func(*gang) bool { return true }) {
		got = append(got, key.Name)
	}
	if diff := cmp.Diff([]string{"high", "a", "b", "old", "young"}, got); diff != "" {
		t.Errorf("(-want,+got)\n%s", diff)
	}
}

// TestElectedMember: a member that is in the queue stays elected. A queue longer than a second let all
// members into it, of which the first to come planned, too early.
func TestElectedMember(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		queued bool
		after  time.Duration
		want   string
	}{
		"it is in the queue, which is long":      {true, 20 * time.Second, "g-1"},
		"it is in the queue, and does not come":  {true, 31 * time.Second, "g-0"},
		"it has not come to the queue":           {false, time.Second, "g-0"},
		"it has not come to the queue right now": {false, 0, "g-1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clk := clocktesting.NewFakeClock(time.Unix(0, 0))
			gangs := New(clk, Config{}, idle{})
			gangs.Serve(testProfile) // no woken pod comes
			pods := []*v1.Pod{member("g", 2, "g-0").Obj(), member("g", 2, "g-1").Obj()}
			for _, pod := range pods {
				gangs.SetPod(pod)
			}
			if tc.queued {
				gangs.Gate(pods[1])
			}
			gangs.tick()
			clk.Step(tc.after)
			gangs.tick()
			for _, pod := range pods {
				if open := gangs.Gate(pod) == ""; open != (pod.Name == tc.want) {
					t.Errorf("%s may come to the queue: %t, want %s alone to", pod.Name, open, tc.want)
				}
			}
		})
	}
}

// TestQueueBeforeLists: no member comes to the queue before the first lists are in. Earlier cycles would
// be in vain.
func TestQueueBeforeLists(t *testing.T) {
	t.Parallel()
	r := newTestEnv(t, 2, 0, false)
	r.unsynced = true
	for i := range 2 {
		r.set(member("g", 2, fmt.Sprintf("g-%d", i)).Obj())
	}
	if r.cycle() {
		t.Error("a member came to the queue before the lists were in")
	}
	r.unsynced = false
	r.settle(3)
	if bound := r.counts("g", 2); bound != 2 {
		t.Errorf("%d of 2 members are bound once the lists are in", bound)
	}
}

// TestSurplusWithoutRoom: a member above the minimum that fits nowhere stops no other. Before, the first
// one without room kept all others from being tried.
func TestSurplusWithoutRoom(t *testing.T) {
	t.Parallel()
	const size, all = 2, 7
	r := newTestEnv(t, 100, 1, false)
	r.never = map[string]bool{"a-2": true, "a-4": true}
	for i := range all {
		r.set(member("a", size, fmt.Sprintf("a-%d", i)).Obj())
	}
	r.settle(30)
	for r.cycle() { // of the last round
	}
	r.nothingHeld()
	if bound := r.counts("a", all); bound != all-2 {
		t.Errorf("%d members are bound, want all but those that fit nowhere", bound)
	}
	r.gangs.mu.Lock()
	waits := r.gangs.queue.byPod[r.pods["a-2"].UID].waits
	r.gangs.mu.Unlock()
	if waits == nil || !waits.ForChange {
		t.Fatalf("the gang waits for %+v, want a change", waits)
	}
	tries := r.tries
	r.clock.Step(time.Minute)
	r.gangs.tick()
	for r.cycle() {
	}
	if r.tries != tries {
		t.Errorf("%d plans without any change", r.tries-tries)
	}
	r.mu.Lock()
	delete(r.never, "a-4")
	r.mu.Unlock()
	r.settle(10)
	if bound := r.counts("a", all); bound != all-1 {
		t.Errorf("%d members are bound once a node takes another one, want %d", bound, all-1)
	}
}
