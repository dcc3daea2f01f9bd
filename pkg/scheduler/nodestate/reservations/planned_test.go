// SPDX-License-Identifier: Apache-2.0

package reservations

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestPlanSteps does one step with the reservation of GPU a on node n that is planned for pod p, or that
// its cycle has moved on.
func TestPlanSteps(t *testing.T) {
	begun := func(r *testEnv, c *Reservation) { r.Begin(c.UID, "n") }
	kept := func(r *testEnv, c *Reservation) {
		r.Keep(c.UID)
		begun(r, c)
	}
	bound := func(node, gpu string) func(*testEnv, *Reservation) Change {
		return func(r *testEnv, c *Reservation) Change {
			b := &Bound{UID: c.UID, Node: node, Version: "7"}
			if gpu != "" {
				b.Allocation = chosen(c.UID, node, gpu)
			}
			return r.PodBound(b)
		}
	}
	end := func(r *testEnv, c *Reservation) Change { return r.EndPlanned(c.UID) }
	unreserve := func(r *testEnv, c *Reservation) Change { return r.Unreserve(c, nil) }
	for name, tc := range map[string]struct {
		before    func(*testEnv, *Reservation)
		step      func(*testEnv, *Reservation) Change
		want      string // the phase then, or "dropped"
		wantFreed bool
	}{
		"its plan ends":                         {nil, end, "dropped", true},
		"its plan ends, and its cycle goes on":  {begun, end, "reserved", false},
		"its cycle ends before it is taken on":  {nil, unreserve, "dropped", true},
		"its cycle ends":                        {begun, unreserve, "dropped", false},
		"its attempt ends, and it is kept":      {kept, unreserve, "planned", false},
		"its cycle begins twice":                {begun, func(r *testEnv, c *Reservation) Change { begun(r, c); return Change{} }, "reserved", false},
		"its cycle begins on another node":      {nil, func(r *testEnv, c *Reservation) Change { r.Begin(c.UID, "m"); return Change{} }, "planned", false},
		"its pod is gone":                       {nil, func(r *testEnv, c *Reservation) Change { return r.PodGone(c.UID) }, "void", true},
		"its pod is bound elsewhere":            {nil, bound("m", ""), "void", true},
		"its pod is bound here, with what?":     {nil, bound("n", ""), "void", true},
		"its pod is bound here with other GPUs": {nil, bound("n", "b"), "void", true},
		"its pod is bound here with this GPU":   {nil, bound("n", "a"), "confirmed", false},
		"its plan ends after it was kept": {kept, func(r *testEnv, c *Reservation) Change {
			r.EndPlanned(c.UID)
			return r.Unreserve(c, nil)
		}, "dropped", false},
		"its attempt ends after its write was refused": {func(r *testEnv, c *Reservation) {
			kept(r, c)
			r.BindingBegan(c)
			r.BindingRefused(c)
		}, unreserve, "planned", false},
		"its attempt ends in doubt": {func(r *testEnv, c *Reservation) {
			kept(r, c)
			r.BindingBegan(c)
		}, unreserve, "doubtful", false},
		"its attempt ends, and somebody else has bound the pod": {kept, func(r *testEnv, c *Reservation) Change {
			return r.Unreserve(c, &Bound{UID: c.UID, Node: "m"})
		}, "dropped", false},
		"the pod is bound elsewhere after it was planned again": {func(r *testEnv, c *Reservation) {
			kept(r, c)
			r.Unreserve(c, nil)
		}, bound("m", ""), "void", true},
		"another choice of the pod, which was in doubt, is carried out": {func(r *testEnv, c *Reservation) {
			r.EndPlanned(c.UID)
			doubt := r.add(c.UID, "m", "b")
			r.BindingBegan(doubt)
			r.Unreserve(doubt, nil)
			r.AddAll([]*Reservation{c})
		}, bound("m", "b"), "void", true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newTestEnv()
			c := r.plan("p", "n", "a")
			if tc.before != nil {
				tc.before(r, c)
			}
			freed := tc.step(r, c).Freed
			r.check(t)
			got := "dropped"
			for _, l := range r.List() {
				if l.Reservation == c {
					got = l.Phase.String()
				}
			}
			if got != tc.want || freed != tc.wantFreed {
				t.Errorf("it is %s, and devices came free: %t; want %s, %t", got, freed, tc.want, tc.wantFreed)
			}
			_, planned := r.Planned("p")
			if want := tc.want == "planned"; planned != want {
				t.Errorf("the pod is said to be planned: %t, want %t", planned, want)
			}
		})
	}
}

// TestPlanAtomicity: a plan is recorded as a whole or not at all.
func TestPlanAtomicity(t *testing.T) {
	for name, tc := range map[string]struct {
		before func(*testEnv)
		want   int
	}{
		"all are free to be planned": {func(*testEnv) {}, -1},
		"one went a short time ago":  {func(r *testEnv) { r.PodGone("q") }, 1},
		"one is being bound":         {func(r *testEnv) { r.add("q", "m", "z") }, 1},
		"one is planned":             {func(r *testEnv) { r.plan("q", "m", "z") }, 1},
		"one has a place":            {func(r *testEnv) { r.plan("q", "m", "") }, 1},
		"one went long ago":          {func(r *testEnv) { r.PodGone("q"); r.pass(ReleaseWithin + time.Second) }, -1},
		"one has a choice that is settled": {func(r *testEnv) {
			r.PodBound(&Bound{
				UID: "q", Node: "m",
				Allocation: r.add("q", "m", "z").Allocation,
			})
		}, -1},
		"one has a choice in doubt": {func(r *testEnv) {
			c := r.add("q", "m", "z")
			r.BindingBegan(c)
			r.Unreserve(c, nil)
		}, -1},
	} {
		t.Run(name, func(t *testing.T) {
			r := newTestEnv()
			tc.before(r)
			before := len(r.List())
			change, refused := r.AddAll([]*Reservation{
				{UID: "p", Node: r.node("n"), Allocation: chosen("p", "n", "a")},
				{UID: "q", Node: r.node("n"), Allocation: chosen("q", "n", "b")},
				{UID: "launcher", Node: r.node("m")},
			})
			r.check(t)
			if refused != tc.want {
				t.Fatalf("refused %d, want %d", refused, tc.want)
			}
			var wantNodes []string
			wantMore := 0
			if tc.want < 0 {
				wantNodes, wantMore = []string{"n"}, 3
			}
			if got := len(r.List()) - before; got != wantMore {
				t.Errorf("%d were added, want %d", got, wantMore)
			}
			if diff := cmp.Diff(wantNodes, names(change.Nodes)); diff != "" {
				t.Errorf("nodes told (-want +got):\n%s", diff)
			}
		})
	}
}

// TestDevicelessPod: a pod without devices has a place until it is bound, gone or its plan ends.
func TestDevicelessPod(t *testing.T) {
	for name, step := range map[string]func(*testEnv){
		"its plan ends": func(r *testEnv) { r.EndPlanned("p") },
		"it is bound":   func(r *testEnv) { r.PodBound(&Bound{UID: "p", Node: "m"}) },
		"it is gone":    func(r *testEnv) { r.PodGone("p") },
	} {
		t.Run(name, func(t *testing.T) {
			r := newTestEnv()
			r.plan("p", "n", "")
			if node, ok := r.Planned("p"); !ok || node != "n" || !r.Knows("p") || !r.Attempted("p") {
				t.Fatalf("planned on %q, %t; want n", node, ok)
			}
			if _, placed := r.Begin("p", "n"); !placed {
				t.Error("its cycle does not find the place")
			}
			if _, placed := r.Begin("p", "m"); placed {
				t.Error("its cycle finds the place on another node")
			}
			if len(r.node("n").View().Reservations) != 0 {
				t.Error("a place holds something")
			}
			step(r)
			r.check(t)
			if _, ok := r.Planned("p"); ok || len(r.List()) != 0 {
				t.Error("it is still there")
			}
		})
	}
}

// TestAwaitingPlans: a reservation that awaits the end of others is not used.
func TestAwaitingPlans(t *testing.T) {
	r := newTestEnv()
	r.add("victim", "n", "a")
	for name, gpu := range map[string]string{"awaits": "a", "awaits without devices": ""} {
		t.Run(name, func(t *testing.T) {
			c := r.reservation("p", "n", gpu)
			c.Awaits = true
			r.AddAll([]*Reservation{c})
			if node, ok := r.Planned("p"); ok {
				t.Errorf("the pod is said to be planned on %s", node)
			}
			if got, placed := r.Begin("p", "n"); got != nil || placed {
				t.Errorf("a cycle began to use it: %v, %t", got, placed)
			}
			if !r.Attempted("p") {
				t.Error("another plan could be made beside it")
			}
			r.EndPlanned("p")
			if r.Attempted("p") {
				t.Error("it is still there")
			}
		})
	}
}

// TestPlanLookupCost: looking up a plan takes no lock when there is none.
func TestPlanLookupCost(t *testing.T) {
	r := newTestEnv()
	r.add("p", "n", "a")
	r.mu.Lock() // the call would not return
	defer r.mu.Unlock()
	if _, ok := r.Planned("p"); ok {
		t.Error("a pod is planned that is reserved")
	}
}
