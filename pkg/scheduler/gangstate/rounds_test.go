// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
)

// roundsSim runs rounds on a clock of its own, with gangs that never have room.
type roundsSim struct {
	rounds
	now    time.Time
	keys   []gangrequest.Key
	cost   time.Duration // of a plan
	queue  time.Duration // how long a cycle takes to come
	tried  []gangrequest.Key
	busy   gangrequest.Key // the gang whose cycle is to come
	ends   time.Time       // when it ends
	plans  time.Duration   // all of them together
	most   int             // greatest number of gangs whose cycles were to come at a time
	starts []time.Time
}

func newRoundsSim(gangs int, cost, queue time.Duration) *roundsSim {
	s := &roundsSim{now: time.Unix(1000, 0), cost: cost, queue: queue}
	for i := range gangs {
		s.keys = append(s.keys, gangrequest.Key{Namespace: "ns", Name: fmt.Sprintf("g-%04d", i)})
	}
	return s
}

// round tries all gangs that wait for a change.
func (g *Gangs) round() {
	for _, key := range g.queue.waiting() {
		g.try(key)
	}
}

// nobodyFirst makes each gang wait for its turn.
func nobodyFirst() []gangrequest.Key { return nil }

// run lets the time pass; there are changes all the time if changes is true.
func (s *roundsSim) run(within time.Duration, changes bool) {
	waits := func() []gangrequest.Key { return slices.Clone(s.keys) }
	for end := s.now.Add(within); s.now.Before(end); {
		if changes {
			s.change(s.now)
		}
		out := s.busy != gangrequest.Key{}
		if out && !s.now.Before(s.ends) {
			s.left, s.plans, s.busy, out = s.left-s.cost, s.plans+s.cost, gangrequest.Key{}, false
		}
		key, wait, ok := s.next(s.now, waits, nobodyFirst, func(k gangrequest.Key) bool { return k == s.busy })
		switch {
		case ok && out:
			s.most = 2
			return
		case ok:
			s.busy, s.ends = key, s.now.Add(s.queue+s.cost)
			s.tried, s.starts = append(s.tried, key), append(s.starts, s.now)
		case out:
			s.now = minTime(s.now.Add(wait), s.ends)
		default:
			s.now = s.now.Add(wait)
		}
	}
}

func minTime(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// TestPlanShare: plans that find nothing take a twentieth of the time, regardless of the number of gangs
// and the cost of a plan, and each gang is tried.
func TestPlanShare(t *testing.T) {
	t.Parallel()
	const within = 2 * time.Hour
	for name, tc := range map[string]struct {
		gangs int
		cost  time.Duration
	}{
		"few gangs":              {3, 17 * time.Millisecond},
		"a hundred":              {100, 17 * time.Millisecond},
		"a thousand":             {1000, 17 * time.Millisecond},
		"a hundred that preempt": {100, 214 * time.Millisecond},
		"a thousand of these":    {1000, 214 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newRoundsSim(tc.gangs, tc.cost, time.Millisecond)
			s.run(within, true)
			if most := within/planShare + planBurst + tc.cost; s.plans > most {
				t.Errorf("plans took %v of %v, want no more than %v", s.plans, within, most)
			}
			if s.most > 1 {
				t.Error("a second gang was tried before the cycle of the first had ended")
			}
			times := map[gangrequest.Key]int{}
			for _, key := range s.tried {
				times[key]++
			}
			fewest, often := len(s.tried), 0
			for _, key := range s.keys {
				fewest, often = min(fewest, times[key]), max(often, times[key])
			}
			if fewest == 0 || often > fewest+1 {
				t.Errorf("a gang was tried %d times and another one %d times", fewest, often)
			}
		})
	}
}

// TestRoundTimes checks when gangs are tried without a change, and after the last one.
func TestRoundTimes(t *testing.T) {
	t.Parallel()
	s := newRoundsSim(1, time.Microsecond, 0)
	s.run(10*time.Second, false)
	if len(s.tried) > 0 {
		t.Errorf("without a change a gang was tried after %v", s.starts[0].Sub(time.Unix(1000, 0)))
	}
	s.change(s.now)
	changed := s.now
	s.run(3*time.Minute, false)
	var got []time.Duration
	for _, at := range s.starts {
		got = append(got, at.Sub(changed).Round(time.Second))
	}
	want := []time.Duration{0, time.Second, 61 * time.Second, 121 * time.Second}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("tried after the change (-want +got)\n%s", diff)
	}
}

// TestTriedFirst: while there are changes, every second try is of a gang that does not wait for the round
// to end, one after the other; the round goes on between them.
func TestTriedFirst(t *testing.T) {
	t.Parallel()
	s := newRoundsSim(1000, time.Millisecond, 0)
	waits := func() []gangrequest.Key { return s.keys }
	first := func() []gangrequest.Key { return []gangrequest.Key{s.keys[700], s.keys[900]} }
	var got []string
	for len(got) < 6 {
		s.change(s.now)
		key, wait, ok := s.next(s.now, waits, first, func(gangrequest.Key) bool { return false })
		if ok {
			got = append(got, key.Name)
		}
		s.now = s.now.Add(max(wait, time.Millisecond))
	}
	want := []string{"g-0000", "g-0700", "g-0001", "g-0900", "g-0002", "g-0700"}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("tried (-want +got)\n%s", diff)
	}
}

// TestLostCycle: a gang whose cycle does not come delays the others by no more than tryWithin.
func TestLostCycle(t *testing.T) {
	t.Parallel()
	s := newRoundsSim(2, time.Millisecond, time.Hour)
	s.change(s.now)
	waits := func() []gangrequest.Key { return s.keys }
	lost := func(gangrequest.Key) bool { return true }
	first, _, _ := s.next(s.now, waits, nobodyFirst, lost)
	if _, wait, ok := s.next(s.now, waits, nobodyFirst, lost); ok || wait != tryWithin {
		t.Errorf("the other gang is tried (%t), or in %v, want in %v", ok, wait, tryWithin)
	}
	second, _, ok := s.next(s.now.Add(tryWithin), waits, nobodyFirst, lost)
	if !ok || cmp.Compare(second.Name, first.Name) <= 0 {
		t.Errorf("after %v %v is tried (%t), want the one behind %v", tryWithin, second, ok, first)
	}
}

// TestNewGangsInDebt: new gangs are tried at once, unless plans have recently taken much more than their
// share, as after a restart with thousands of gangs. Then they are tried in the next round.
func TestNewGangsInDebt(t *testing.T) {
	t.Parallel()
	g := New(clocktesting.NewFakePassiveClock(time.Unix(0, 0)), Config{}, &releaser{})
	g.Serve(testProfile)
	come := func(name string) (why string) {
		pod := member(name, 1, name+"-0").Obj()
		g.SetPod(pod)
		return g.Gate(pod)
	}
	if why := come("first"); why != "" {
		t.Errorf("without a debt: %q", why)
	}
	g.queue.debt.Store(int64(2 * maxDebt))
	if why := come("second"); why != othersFirst {
		t.Errorf("in debt: %q, want %q", why, othersFirst)
	}
	keys := g.queue.waiting()
	if len(keys) != 1 || keys[0].Name != "second" {
		t.Fatalf("%v wait for a round, want the second gang", keys)
	}
	g.try(keys[0])
	if why := g.Gate(member("second", 1, "second-0").Obj()); why != "" {
		t.Errorf("in its turn: %q", why)
	}
	if !g.queue.isTried(keys[0]) {
		t.Error("nobody waits for the cycle of the gang that was tried")
	}
	g.Wait(keys[0], &Wait{Why: "no room", ForChange: true})
	if g.queue.isTried(keys[0]) {
		t.Error("its cycle is waited for when it has ended")
	}
}
