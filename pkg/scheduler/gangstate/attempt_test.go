// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"k8s.io/apimachinery/pkg/types"
)

func TestAttempt(t *testing.T) {
	t.Parallel()
	type uids = []types.UID
	late := time.Unix(100, 0)
	permit := func(uid types.UID) func(*attempt) effects {
		return func(a *attempt) effects { e, _ := a.permitted(uid); return e }
	}
	begin := func(uid types.UID) func(*attempt) effects {
		return func(a *attempt) effects { a.begun(uid); return effects{} }
	}
	unreserve := func(uid types.UID) func(*attempt) effects {
		return func(a *attempt) effects { return a.unreserved(uid, "no") }
	}
	gone := func(uid types.UID) func(*attempt) effects {
		return func(a *attempt) effects { return a.gone(uid, "gone") }
	}
	stopped := func(uid types.UID) func(*attempt) effects {
		return func(a *attempt) effects { return a.stopped(uid, "gated") }
	}
	bound := func(uid types.UID) func(*attempt) effects {
		return func(a *attempt) effects { return a.bound(uid) }
	}
	written := func(err error) func(*attempt) effects {
		return func(a *attempt) effects { return a.written(err) }
	}
	tick := func(at time.Time) func(*attempt) effects {
		return func(a *attempt) effects { return a.tick(at) }
	}
	// all are the steps up to the commit of the members a, b and c, of which a planned.
	all := []func(*attempt) effects{permit("a"), begin("b"), permit("b"), begin("c")}
	tests := map[string]struct {
		before []func(*attempt) effects
		last   func(*attempt) effects
		want   effects
		phase  phase
	}{
		"the first to come wakes the others":               {last: permit("a"), want: effects{activate: uids{"b", "c"}}, phase: collecting},
		"the second wakes nobody":                          {before: all[:2], last: permit("b"), phase: collecting},
		"one that is before its Permit is waited for":      {before: append(all[:2:2], all[3]), last: permit("b"), phase: collecting},
		"the last to come begins the commit":               {before: all, last: permit("c"), want: effects{commit: true}, phase: committing},
		"once it is written all are let through":           {before: append(all[:4:4], permit("c")), last: written(nil), want: effects{allow: uids{"a", "b", "c"}}, phase: committed},
		"if it cannot be written nobody is":                {before: append(all[:4:4], permit("c")), last: written(errors.New("no")), want: effects{reject: uids{"a", "b", "c"}}, phase: ending},
		"one that fails ends the attempt of all":           {before: all[:2], last: unreserve("b"), want: effects{release: uids{"c", "b"}, reject: uids{"a"}}, phase: ending},
		"the planner itself fails before it woke anybody":  {last: unreserve("a"), want: effects{release: uids{"b", "c", "a"}, over: true}, phase: none},
		"one that is gone ends the attempt of all":         {before: all[:3], last: gone("c"), want: effects{release: uids{"c"}, reject: uids{"a", "b", "c"}}, phase: ending},
		"one that another scheduler bound ends it, too":    {before: all[:1], last: bound("b"), want: effects{release: uids{"c"}, reject: uids{"a"}}, phase: ending},
		"it ends when it takes too long":                   {before: all[:1], last: tick(late.Add(1)), want: effects{release: uids{"b", "c"}, reject: uids{"a"}}, phase: ending},
		"until then those that have not come are woken":    {before: all[:1], last: tick(late), want: effects{activate: uids{"b", "c"}}, phase: collecting},
		"waiters of an ended attempt are rejected again":   {before: append(all[:3:3], gone("c")), last: tick(late), want: effects{reject: uids{"a", "b"}}, phase: ending},
		"it is over when the last of them has ended":       {before: append(all[:3:3], gone("c"), unreserve("a")), last: unreserve("b"), want: effects{release: uids{"b"}, over: true}, phase: none},
		"a failed bind comes again alone":                  {before: append(all[:4:4], permit("c"), written(nil)), last: unreserve("b"), want: effects{activate: uids{"b"}}, phase: committed},
		"which is let through at once":                     {before: append(all[:4:4], permit("c"), written(nil), unreserve("b"), begin("b")), last: permit("b"), phase: committed},
		"a committed member that is gone harms nobody":     {before: append(all[:4:4], permit("c"), written(nil)), last: gone("b"), want: effects{release: uids{"b"}, reject: uids{"b"}}, phase: committed},
		"all bound is done":                                {before: append(all[:4:4], permit("c"), written(nil), bound("a"), bound("b")), last: bound("c"), want: effects{over: true, done: true}, phase: none},
		"a committed member whose place is lost is let go": {before: append(all[:4:4], permit("c"), written(nil), unreserve("b")), last: func(a *attempt) effects { return a.givenUp("b") }, want: effects{release: uids{"b"}}, phase: committed},
		"one that a plugin before ours refuses ends it":    {before: all[:1], last: unreserve("c"), want: effects{release: uids{"b", "c"}, reject: uids{"a"}}, phase: ending},
		"one that may not be scheduled any more ends it":   {before: all[:1], last: stopped("b"), want: effects{release: uids{"c", "b"}, reject: uids{"a", "b"}}, phase: ending},
		"one on its way has to end before it comes again": {
			before: append(all[:3:3], stopped("b")), last: unreserve("a"), want: effects{release: uids{"a"}}, phase: ending,
		},
		"and is the last": {
			before: append(all[:3:3], stopped("b"), unreserve("a")), last: unreserve("b"), want: effects{release: uids{"b"}, over: true}, phase: none,
		},
		"a committed one on its way does not come again": {
			before: append(all[:4:4], permit("c"), written(nil), stopped("b")), last: unreserve("b"), want: effects{release: uids{"b"}}, phase: committed,
		},
		"a committed gang that lost a member is not whole": {
			before: append(all[:4:4], permit("c"), written(nil), bound("a"), bound("c"), unreserve("b")),
			last:   func(a *attempt) effects { return a.givenUp("b") }, want: effects{release: uids{"b"}, over: true}, phase: none,
		},
		"a pod of another gang is nobody's to give up": {
			before: append(all[:4:4], permit("c"), written(nil), bound("a"), bound("b"), unreserve("c")),
			last:   func(a *attempt) effects { return a.givenUp("another gang's") }, phase: committed,
		},
		"nor is one of which a member is gone before it was bound": {
			before: append(all[:4:4], permit("c"), written(nil), bound("a"), bound("c")),
			last:   gone("b"), want: effects{release: uids{"b"}, reject: uids{"b"}, over: true}, phase: none,
		},
		"but one that is gone after it was bound harms nobody": {
			before: append(all[:4:4], permit("c"), written(nil), bound("a"), bound("b"), gone("b")),
			last:   bound("c"), want: effects{over: true, done: true}, phase: none,
		},
		"one whose binding failed comes again for a time": {
			before: append(all[:4:4], permit("c"), written(nil), unreserve("b"), tick(late)),
			last:   tick(late.Add(maxKeep)), want: effects{activate: uids{"b"}}, phase: committed,
		},
		"and is given up after it": {
			before: append(all[:4:4], permit("c"), written(nil), unreserve("b"), tick(late)),
			last:   tick(late.Add(maxKeep + 1)), want: effects{release: uids{"b"}}, phase: committed,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := hold(uids{"a", "b", "c"}, "a", late)
			for _, step := range tc.before {
				step(a)
			}
			got := tc.last(a)
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(effects{})); diff != "" {
				t.Errorf("(-want,+got)\n%s", diff)
			}
			if a.phase != tc.phase {
				t.Errorf("phase %d, want %d", a.phase, tc.phase)
			}
		})
	}
}

// TestEndedAttempt: an ended attempt accepts no member.
func TestEndedAttempt(t *testing.T) {
	t.Parallel()
	a := hold([]types.UID{"a", "b"}, "a", time.Unix(100, 0))
	if _, is := a.permitted("a"); is != wait {
		t.Fatalf("the first to come is told %d, want to wait", is)
	}
	a.gone("b", "gone")
	if a.begun("b") {
		t.Error("a member that is gone may go on")
	}
	if _, is := a.permitted("b"); is != refuse {
		t.Errorf("its Permit says %d, want a refusal", is)
	}
	if a.has("b") || !a.has("a") {
		t.Error("want only the waiter to be on the way")
	}
}
