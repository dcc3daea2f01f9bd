// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestStates follows a gang, beside one that lacks a member, from its first pod to its end.
func TestStates(t *testing.T) {
	t.Parallel()
	r := newRig(t, 0, 1, false)
	want := func(when string, states map[string]int) {
		t.Helper()
		if diff := cmp.Diff(states, r.gangs.states()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	r.set(member("b", 2, "b-0", 0))
	r.set(member("a", 2, "a-0", 0))
	r.settle(2)
	want("each lacks a member", map[string]int{stateIncomplete: 2})
	r.set(member("a", 2, "a-1", 0))
	r.settle(2)
	want("one has no room", map[string]int{stateIncomplete: 1, stateWaiting: 1})
	r.mu.Lock()
	r.room = 2
	r.mu.Unlock()
	r.settle(20)
	r.binding.Wait()
	want("it is bound", map[string]int{stateIncomplete: 1, stateBound: 1})
	for _, name := range []string{"a-0", "a-1", "b-0"} {
		r.delete(name)
	}
	want("all are gone", map[string]int{})
}

func TestResultsOfAttempts(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		attempt     attempt
		done, fresh bool
		want        string
	}{
		"a gang that had nobody bound": {done: true, fresh: true, want: "placed"},
		"a replacement":                {done: true, want: "added"},
		"a place that was lost":        {attempt: attempt{lost: true}, fresh: true, want: "partial"},
		"a member that did not come":   {attempt: attempt{failed: true, late: true}, fresh: true, want: "late"},
		"a bind that failed":           {attempt: attempt{failed: true}, fresh: true, want: "failed"},
		"a member that is gone":        {fresh: true, want: "ended"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := tc.attempt.result(tc.done, tc.fresh); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}
