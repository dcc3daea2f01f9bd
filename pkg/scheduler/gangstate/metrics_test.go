// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
)

// TestStates follows a gang, beside one that lacks a member, from its first pod to its end.
func TestStates(t *testing.T) {
	t.Parallel()
	r := newTestEnv(t, 0, 1, false)
	want := func(when string, states map[string]int) {
		t.Helper()
		if diff := cmp.Diff(states, r.gangs.states()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	r.set(member("b", 2, "b-0").Obj())
	r.set(member("a", 2, "a-0").Obj())
	r.settle(2)
	want("each lacks a member", map[string]int{stateIncomplete: 2})
	r.set(member("a", 2, "a-1").Obj())
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

func TestAttemptResults(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		attempt     attempt
		done, fresh bool
		want        string
	}{
		"a gang that had nobody bound": {done: true, fresh: true, want: "placed"},
		"a replacement":                {done: true, want: "added"},
		"a place that was lost":        {attempt: attempt{lost: true}, fresh: true, want: "partial"},
		"a member that did not come":   {attempt: attempt{why: reason{failed: true, late: true}}, fresh: true, want: "late"},
		"a bind that failed":           {attempt: attempt{why: reason{failed: true}}, fresh: true, want: "failed"},
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

// TestReduces reads the metric of gangs of one member, whose placement has the time of an all-reduce.
func TestReduces(t *testing.T) {
	t.Parallel()
	placement := func(hierarchical gangrequest.Millis) string {
		text, err := (&gangrequest.Placement{Level: "node", Estimate: gangrequest.Estimate{Hierarchical: hierarchical}}).Encode()
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	tests := map[string]struct {
		placement string
		bound     bool
		want      map[string]float64
	}{
		"bound":                      {placement(33.5), true, map[string]float64{`gang ns/a`: 0.0335}},
		"not bound yet":              {placement(33.5), false, map[string]float64{}},
		"a bandwidth is not known":   {placement(gangrequest.Millis(math.Inf(1))), true, map[string]float64{}},
		"nothing was written":        {"", true, map[string]float64{}},
		"what nobody of ours writes": {`{"estimateMs":{"hierarchical":1}}`, true, map[string]float64{}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newTestEnv(t, 0, 1, false)
			p := member("a", 1, "a-0").Annotation(gangrequest.PlacementKey, tc.placement)
			if tc.bound {
				p.Node("n")
			}
			r.gangs.SetPod(p.Obj())
			if diff := cmp.Diff(tc.want, r.gangs.reduces()); diff != "" {
				t.Errorf("(-want,+got)\n%s", diff)
			}
		})
	}
}
