// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestOrder(t *testing.T) {
	t.Parallel()
	three := Divide(56, threeTenants())
	for name, tc := range map[string]struct {
		old, now Division
		want     []Step
	}{
		"a new pool":              {now: three, want: []Step{{Queue: "c"}, {}, {Queue: "a"}, {Queue: "b"}}},
		"the cohort lost a node":  {old: three, now: Divide(48, threeTenants()), want: []Step{{}, {Queue: "a"}, {Queue: "b"}, {Queue: "c"}}},
		"the cohort has one more": {old: three, now: Divide(64, threeTenants()), want: []Step{{Queue: "a"}, {Queue: "b"}, {Queue: "c"}, {}}},
		"a tenant left":           {old: three, now: Divide(56, threeTenants()[1:]), want: []Step{{Queue: "b"}, {Queue: "c"}, {Queue: "a", Gone: true}, {}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, Order(tc.old, tc.now)); diff != "" {
				t.Errorf("order (-want +got):\n%s", diff)
			}
		})
	}
}

// TestPromiseOrder carries out random changes step by step.
func TestPromiseOrder(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(17, 2))
	for range 5000 {
		old, now := Divide(randomPool(r)), Divide(randomPool(r))
		has, want := promises(old), promises(now)
		bound := max(total(has), total(want))
		for _, s := range Order(old, now) {
			if has[s.Queue] = want[s.Queue]; s.Gone {
				delete(has, s.Queue)
			}
			if got := total(has); got > bound {
				t.Fatalf("from %+v to %+v: %d promised after %+v, want %d at most", old, now, got, s, bound)
			}
		}
		if diff := cmp.Diff(want, has); diff != "" {
			t.Fatalf("after all steps (-want +got):\n%s", diff)
		}
	}
}

// promises returns the amounts held for sure, by queue; the cohort's under "".
func promises(d Division) map[string]int64 {
	m := map[string]int64{"": d.Cohort}
	for q := range slices.Values(d.Queues) {
		m[q.Name] = q.Nominal
	}
	return m
}

func total(promises map[string]int64) (sum int64) {
	for _, n := range promises {
		sum += n
	}
	return sum
}
