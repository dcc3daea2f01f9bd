// SPDX-License-Identifier: Apache-2.0

package invoicing

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/accounting"
)

// TestBatchesWithKills: over months each session is billed once at any time, with controllers that are
// killed at any write, lose responses, have late caches or run twice at once, and with records that come
// back from a backup. In the end batches have all sessions whose pod is gone.
func TestBatchesWithKills(t *testing.T) {
	for seed := range uint64(2) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			api := newTestAPI(t, seed)
			killed, restored := api.months(t)
			for _, name := range slices.Sorted(maps.Keys(api.open)) {
				api.end(t, name)
			}
			api.now = api.now.AddDate(0, 3, 0)
			for range 6 {
				api.passes(t, api.snapshot(t), 0)
			}
			api.check(t, "in the end")
			batches := api.checkAllBatched(t)
			if killed < 4 || restored < 3 || batches < 5 || len(api.ended) < 40 {
				t.Errorf("%d kills, %d restored, %d batches, %d sessions: the test shows less than it says", killed, restored, batches, len(api.ended))
			}
			t.Logf("%d sessions, %d batches, %d kills, %d restored", len(api.ended), batches, killed, restored)
		})
	}
}

// months starts and ends pods, lets controllers keep the books and records come back, and compares the
// bill all the time.
func (a *testAPI) months(t *testing.T) (killed, restored int) {
	t.Helper()
	cache := a.snapshot(t)
	for range 30 {
		a.now = a.now.Add(time.Duration(a.random.IntN(72)) * time.Hour)
		for range a.random.IntN(6) {
			a.begin(t)
		}
		for _, name := range slices.Sorted(maps.Keys(a.open)) {
			if a.random.IntN(2) == 0 {
				a.end(t, name)
			}
		}
		if gone := slices.Sorted(maps.Keys(a.ended)); len(gone) > 0 && a.random.IntN(4) == 0 {
			a.restore(t, gone[a.random.IntN(len(gone))])
			restored++
		}
		for range 2 {
			killed += a.passes(t, cache, 20)
			a.check(t, a.now.String())
			if a.random.IntN(2) == 0 {
				cache = a.snapshot(t)
			}
		}
	}
	return killed, restored
}

// checkAllBatched compares batches and records with the existing pods.
func (a *testAPI) checkAllBatched(t *testing.T) (batches int) {
	t.Helper()
	var records v1alpha1.UsageRecordList
	var list v1alpha1.UsageBatchList
	if err := errors.Join(a.List(t.Context(), &records), a.List(t.Context(), &list)); err != nil {
		t.Fatal(err)
	}
	for i := range records.Items {
		if r := &records.Items[i]; !a.alive[r.Name] {
			t.Errorf("record %s is still there, though its pod is gone", r.Name)
		}
	}
	batched := map[string]bool{}
	for _, r := range accounting.InBatches(list.Items) {
		batched[r.Name] = true
	}
	for name := range a.ended {
		if batched[name] == a.alive[name] {
			t.Errorf("session %s is in a batch: %v, and its pod is there: %v", name, batched[name], a.alive[name])
		}
	}
	return len(list.Items)
}

// TestFills: a thousand ready records go into batches at once, fewer once one has been ready for a week.
func TestFills(t *testing.T) {
	now := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
	r := &reconciler{batchAfter: time.Hour}
	for name, tc := range map[string]struct {
		records int
		age     time.Duration // of one of them; the others ended a day ago
		want    bool
	}{
		"none":                            {},
		"one":                             {records: 1, age: 24 * time.Hour},
		"one that is ready for a week":    {records: 1, age: 7*24*time.Hour + time.Hour, want: true},
		"one that is for a second less":   {records: 999, age: 7*24*time.Hour + time.Hour - time.Second},
		"one of many is ready for a week": {records: 999, age: 8 * 24 * time.Hour, want: true},
		"a thousand":                      {records: 1000, age: 24 * time.Hour, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			records := make([]v1alpha1.UsageRecord, tc.records)
			for i := range records {
				at := metav1.NewTime(now.Add(-24 * time.Hour))
				if i == len(records)-1 {
					at = metav1.NewTime(now.Add(-tc.age))
				}
				records[i].Status.End = &at
			}
			if got := r.fills(pointers(records), now); got != tc.want {
				t.Errorf("they go into batches: %v, want %v", got, tc.want)
			}
		})
	}
}
