// SPDX-License-Identifier: Apache-2.0

package nodelease

import (
	"fmt"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func lease(name string, renewed time.Time, d time.Duration) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: coordinationv1.LeaseSpec{
			RenewTime: new(metav1.NewMicroTime(renewed)), LeaseDurationSeconds: new(int32(d / time.Second)),
		},
	}
}

// TestGraphFreshness: the freshness of a graph counts from when its renewal was seen. It plays what
// a scheduler sees of one Lease of 120 s and asks at the end of each step whether it counts.
func TestGraphFreshness(t *testing.T) {
	type step struct {
		after   time.Duration // since the step before
		renewed time.Duration // by the node's clock, since the start by ours
		silent  bool          // nothing is seen
		gone    bool          // the Lease is deleted
		want    bool
		back    bool // reported as having come back
	}
	const day = 24 * time.Hour
	tests := map[string]struct {
		freshness time.Duration
		steps     []step
	}{
		"a clock like ours": {steps: []step{
			{renewed: 0, want: true, back: true},
			{after: 119 * time.Second, silent: true, want: true},
			{after: time.Second, silent: true},
			{after: time.Second, renewed: 121 * time.Second, want: true, back: true},
		}},
		"a renewal from before the start": {steps: []step{
			{renewed: -100 * time.Second, want: true, back: true},
			{after: 21 * time.Second, silent: true},
		}},
		"silent for a day before the start": {steps: []step{{renewed: -day}}},
		"a clock an hour behind counts from the second renewal": {steps: []step{
			{renewed: -time.Hour},
			{after: 30 * time.Second, renewed: -time.Hour + 30*time.Second, want: true, back: true},
			{after: 119 * time.Second, silent: true, want: true},
			{after: time.Second, silent: true},
		}},
		"a clock an hour ahead does not count for an hour": {steps: []step{
			{renewed: time.Hour, want: true, back: true},
			{after: 119 * time.Second, silent: true, want: true},
			{after: time.Second, silent: true},
		}},
		"a clock that is set back": {steps: []step{
			{renewed: 0, want: true, back: true},
			{after: 30 * time.Second, renewed: -day, want: true},
			{after: 100 * time.Second, silent: true, want: true},
			{after: 20 * time.Second, silent: true},
		}},
		"listed again without a renewal": {steps: []step{
			{renewed: time.Hour, want: true, back: true},
			{after: 110 * time.Second, renewed: time.Hour, want: true},
			{after: 10 * time.Second, renewed: time.Hour},
		}},
		"deleted and made again": {steps: []step{
			{renewed: 0, want: true, back: true},
			{after: time.Second, gone: true},
			{after: time.Second, renewed: -200 * time.Second},
			{after: time.Second, renewed: 0, want: true, back: true},
		}},
		"a deadline of the operator's": {freshness: 10 * time.Minute, steps: []step{
			{renewed: 0, want: true, back: true},
			{after: 599 * time.Second, silent: true, want: true},
			{after: time.Second, silent: true},
		}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			table, now := NewTable(tc.freshness), start
			l := table.Get(ExporterPrefix + "n")
			for i, st := range tc.steps {
				now = now.Add(st.after)
				back := false
				switch {
				case st.gone:
					table.Drop(ExporterPrefix + "n")
				case !st.silent:
					back = table.Set(lease(ExporterPrefix+"n", start.Add(st.renewed), 2*time.Minute), now)
				}
				if got := l.Fresh(now); got != st.want || back != st.back {
					t.Errorf("step %d: fresh %t, back %t, want %t, %t", i, got, back, st.want, st.back)
				}
			}
		})
	}
}

// TestGraphDeadline: the deadline for graphs leaves agents alone.
func TestGraphDeadline(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	table := NewTable(time.Hour)
	table.Set(lease(AgentPrefix+"n", now, 2*time.Minute), now)
	if table.Get(AgentPrefix + "n").Fresh(now.Add(2 * time.Minute)) {
		t.Error("the agent's Lease counts for longer than it says")
	}
}

// TestForget keeps the Leases that exist and no others.
func TestForget(t *testing.T) {
	now, table := time.Unix(1_700_000_000, 0), NewTable(0)
	for i := range 1000 {
		exists, gone := fmt.Sprint(ExporterPrefix, i), fmt.Sprint(AgentPrefix, i)
		table.Set(lease(exists, now, time.Minute), now)
		table.Set(lease(gone, now, time.Minute), now)
		table.Drop(gone)
		if table.Forget(exists, gone) || !table.Fresh(exists, now) {
			t.Fatalf("Lease %s was forgotten, and exists", exists)
		}
		table.Drop(exists)
		if !table.Forget(exists, gone) || table.Fresh(exists, now) || table.Fresh("other", now) || len(table.times) != 0 {
			t.Fatalf("%d Leases are kept that are gone, want none", len(table.times))
		}
	}
}
