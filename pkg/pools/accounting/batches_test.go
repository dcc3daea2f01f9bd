// SPDX-License-Identifier: Apache-2.0

package accounting

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
)

// priced returns a session of an hour on an invoice, with a fixed price.
func priced(name, invoice string) v1alpha1.UsageRecord {
	r := marked(lasting(name, "4", 3600), invoice)
	r.Spec.Namespace, r.Spec.Queue, r.Spec.Owner, r.Spec.Model = "team-a", "training", "Job/sweep", "NVIDIA-H200"
	r.Status.UnitPrice, r.Status.BilledSeconds, r.Status.Cost = "2", 3600, "8.00"
	return r
}

func batchesOf(t *testing.T, there []v1alpha1.UsageBatch, records ...v1alpha1.UsageRecord) []v1alpha1.UsageBatch {
	t.Helper()
	batches, err := Batches(records, there)
	if err != nil {
		t.Fatal(err)
	}
	return batches
}

// TestBatchesKeepAllOfARecord: a record read from a batch equals the original, except for labels and
// other metadata.
func TestBatchesKeepAllOfARecord(t *testing.T) {
	rest := priced("u3", november)
	rest.Name, rest.Status.Estimated = "u3-from-1777000000", true
	second := of(priced("u2", november), "nvidia.com/mig-3g.40gb")
	second.Name, second.Spec.Quantity = "u2-1", "0.428"
	unpriced := priced("u4", november)
	unpriced.Status = v1alpha1.UsageRecordStatus{End: unpriced.Status.End, Cost: "0.00", Invoice: november}
	want := []v1alpha1.UsageRecord{priced("u1", november), priced("u2", november), second, rest, unpriced}
	got := InBatches(batchesOf(t, nil, want...))
	slices.SortFunc(got, func(a, b v1alpha1.UsageRecord) int { return strings.Compare(a.Name, b.Name) })
	if len(got) != len(want) {
		t.Fatalf("%d records came out, want %d", len(got), len(want))
	}
	for i := range want {
		if diff := cmp.Diff(want[i].Spec, got[i].Spec); diff != "" || got[i].Name != want[i].Name || got[i].Namespace != want[i].Namespace {
			t.Errorf("record %s: (-want +got)\n%s", want[i].Name, diff)
		}
		if diff := cmp.Diff(want[i].Status, got[i].Status); diff != "" {
			t.Errorf("status of record %s: (-want +got)\n%s", want[i].Name, diff)
		}
	}
}

// TestBatchesAreApart: a batch is of one invoice, namespace and tenant, and of limited size. Its number
// follows those of the existing ones.
func TestBatchesAreApart(t *testing.T) {
	elsewhere := priced("u2", november)
	elsewhere.Namespace, elsewhere.Spec.Namespace = "lab", "lab"
	many := make([]v1alpha1.UsageRecord, 0, 3000)
	for i := range cap(many) {
		r := priced(fmt.Sprintf("%08d-0000-4000-8000-000000000000", i), december)
		r.Spec.Pod = strings.Repeat("p", 253)
		many = append(many, r)
	}
	there := []v1alpha1.UsageBatch{
		{ObjectMeta: metav1.ObjectMeta{Name: november + ".team-a.9"}, Spec: v1alpha1.UsageBatchSpec{Invoice: november, Namespace: "team-a"}},
		{ObjectMeta: metav1.ObjectMeta{Name: november + ".team-a.10"}, Spec: v1alpha1.UsageBatchSpec{Invoice: november, Namespace: "team-a"}},
	}
	got := batchesOf(t, there, append(many, priced("u1", november), elsewhere, priced("u3", october))...)
	var named []string
	sessions := 0
	for i := range got {
		named = append(named, got[i].Name)
		if size := BatchSize(&got[i]); size > 512<<10-4<<10 {
			t.Errorf("batch %s has %d bytes", got[i].Name, size)
		}
		sessions += len(InBatches(got[i : i+1]))
	}
	want := []string{october + ".team-a.1", november + ".lab.1", november + ".team-a.11"}
	if diff := cmp.Diff(want, named[:3]); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if sessions != len(many)+3 || len(got) < 5 {
		t.Errorf("%d batches have %d sessions, want %d", len(got), sessions, len(many)+3)
	}
	slices.Reverse(many)
	if diff := cmp.Diff(named[3:], namesOf(batchesOf(t, there, many...))); diff != "" {
		t.Errorf("in another order other batches are made: (-want +got)\n%s", diff)
	}
}

func namesOf(batches []v1alpha1.UsageBatch) (out []string) {
	for i := range batches {
		out = append(out, batches[i].Name)
	}
	return out
}

func TestRecordThatBelongsToNoPodIsInNoBatch(t *testing.T) {
	r := priced("u1", november)
	r.Spec.PodUID = "other"
	if _, err := Batches([]v1alpha1.UsageRecord{r}, nil); err == nil {
		t.Error("it was taken")
	}
}

// TestReady checks which records can go into a batch, and which only lack their invoice.
func TestReady(t *testing.T) {
	monthly := func(b *v1alpha1.PriceBookSpec) { b.DiscountScope = v1alpha1.ScopeBillingPeriod }
	unmarked := marked(priced("u", november), "")
	for name, tc := range map[string]struct {
		record       v1alpha1.UsageRecord
		book         *v1alpha1.PriceBook
		final        bool
		now          time.Time
		batches      []v1alpha1.UsageBatch
		wantReady    bool
		wantUnmarked bool
	}{
		"priced and on an open invoice":             {record: priced("u", november), wantReady: true},
		"priced and on a final invoice":             {record: priced("u", november), final: true, wantReady: true},
		"priced and on none":                        {record: unmarked, wantUnmarked: true},
		"it ended just now":                         {record: priced("u", november), now: day(11, 2, 1)},
		"it goes on":                                {record: session("u", "4", day(11, 2, 0), time.Time{})},
		"it has no price, and its invoice is open":  {record: marked(lasting("u", "4", 3600), november)},
		"it has no price, and its invoice is final": {record: marked(lasting("u", "4", 3600), november), final: true, wantReady: true},
		"a discount over the month is to come":      {record: priced("u", november), book: prices(monthly)},
		"and is not marked":                         {record: unmarked, book: prices(monthly)},
		"a discount over the month is known":        {record: priced("u", november), book: prices(monthly), final: true, wantReady: true},
		"it is in a batch":                          {record: priced("u", november), batches: batchesOf(t, nil, priced("u", november))},
		"it came from a backup without its status":  {record: restored(session("u", "4", day(11, 2, 0), time.Time{}))},
	} {
		t.Run(name, func(t *testing.T) {
			b := &Books{
				Account: account(), Prices: prices(), Records: []v1alpha1.UsageRecord{tc.record}, Batches: tc.batches,
				Invoices: []v1alpha1.Invoice{invoice(november, 11, "8.00", tc.final)}, Now: day(11, 3, 0),
			}
			if tc.book != nil {
				b.Prices = tc.book
			}
			if !tc.now.IsZero() {
				b.Now = tc.now
			}
			ready, unmarked := b.Ready(time.Hour)
			if len(ready) == 1 != tc.wantReady || len(unmarked) == 1 != tc.wantUnmarked {
				t.Errorf("%d are ready and %d lack their invoice; want %v and %v", len(ready), len(unmarked), tc.wantReady, tc.wantUnmarked)
			}
			if never, _ := b.Ready(0); len(never) > 0 {
				t.Error("one is ready, though none is to go into a batch")
			}
		})
	}
}

// TestBatchedSessionsCountOnce: sessions are billed once and unchanged, in records, in batches, or in
// both, also if the record came back from a backup without its status.
func TestBatchedSessionsCountOnce(t *testing.T) {
	lost := restored(session("u1", "4", day(11, 2, 0), time.Time{}))
	records := []v1alpha1.UsageRecord{priced("u1", november), priced("u2", november), lasting("u3", "4", 7200), session("u4", "1", day(11, 2, 2), time.Time{})}
	bill := func(final bool, records []v1alpha1.UsageRecord, batches []v1alpha1.UsageBatch) string {
		t.Helper()
		b := &Books{
			Account: account("100.00"), Prices: prices(), Records: records, Batches: batches, Now: day(11, 3, 0),
			Invoices: []v1alpha1.Invoice{invoice(november, 11, "16.00", final)},
		}
		s, err := b.Compute()
		if err != nil {
			t.Fatal(err)
		}
		var total []string
		for _, v := range s.Invoices {
			total = append(total, string(v.Total))
		}
		return fmt.Sprint("balance ", s.Balance, ", billed ", s.Billed, ", accrued ", s.Accrued, ", invoices ", total, ", wrong ", s.Wrong, ", held ", s.Held)
	}
	one := batchesOf(t, nil, records[0])
	both := batchesOf(t, nil, records[:2]...)
	for _, final := range []bool{false, true} {
		want := bill(final, records, nil)
		for name, tc := range map[string]struct {
			records []v1alpha1.UsageRecord
			batches []v1alpha1.UsageBatch
		}{
			"a batch beside its records":                      {records, both},
			"a batch in place of its records":                 {records[2:], both},
			"one record is gone":                              {records[1:], both},
			"a session in two batches":                        {records[2:], append(slices.Clone(one), both...)},
			"a record that came back without what it said":    {append([]v1alpha1.UsageRecord{lost}, records[2:]...), both},
			"a record in two namespaces, one of them batched": {append([]v1alpha1.UsageRecord{in(records[0], "nvtopo-system")}, records...), one},
		} {
			if got := bill(final, tc.records, tc.batches); got != want {
				t.Errorf("%s, final %v: %s; want %s", name, final, got, want)
			}
		}
	}
}

func in(r v1alpha1.UsageRecord, namespace string) v1alpha1.UsageRecord {
	r.Namespace = namespace
	return r
}

// TestBatchedSessionsAreNotWritten: a session in a batch is never written, and one that is to go into a
// batch is marked at once.
func TestBatchedSessionsAreNotWritten(t *testing.T) {
	unmarked := marked(priced("u2", november), "")
	b := &Books{
		Account: account(), Prices: prices(), Records: []v1alpha1.UsageRecord{unmarked}, Batches: batchesOf(t, nil, priced("u1", november)), Now: day(11, 3, 0),
		Invoices: []v1alpha1.Invoice{invoice(november, 11, "16.00", false)},
	}
	for _, after := range []time.Duration{0, time.Hour} {
		b.BatchAfter = after
		s, err := b.Compute()
		if err != nil {
			t.Fatal(err)
		}
		got := map[types.NamespacedName][2]bool{}
		for _, session := range s.Sessions {
			got[session.Record] = [2]bool{session.Batched, session.Late}
		}
		want := map[types.NamespacedName][2]bool{{Namespace: "team-a", Name: "u1"}: {true, false}, {Namespace: "team-a", Name: "u2"}: {false, after > 0}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("after %s: (-want +got)\n%s", after, diff)
		}
	}
}

func TestExpiredBatches(t *testing.T) {
	batches := batchesOf(t, nil, priced("u1", november), priced("u2", october))
	exported := invoice(october, 10, "8.00", true)
	at := metav1.NewTime(day(11, 5, 0))
	exported.Status.ExportedAt = &at
	open := invoice(november, 11, "8.00", true)
	tally := NewTally()
	for i := range batches {
		tally.SetBatch(&batches[i])
	}
	tally.SetInvoice(&exported)
	tally.SetInvoice(&open)
	for now, want := range map[time.Time][]string{day(11, 6, 23): nil, day(11, 7, 0): {october + ".team-a.1"}} {
		var got []string
		_, expired := tally.Expired(48*time.Hour, now)
		for _, b := range expired {
			got = append(got, b.Name)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("at %s: (-want +got)\n%s", now, diff)
		}
	}
}

// TestReplaced checks which records batches replace, so that they can be deleted.
func TestReplaced(t *testing.T) {
	batches := batchesOf(t, nil, priced("u1", november), priced("u2", november))
	change := func(do func(*v1alpha1.UsageRecord)) v1alpha1.UsageRecord {
		r := priced("u1", november)
		do(&r)
		return r
	}
	for name, tc := range map[string]struct {
		records []v1alpha1.UsageRecord
		batches []v1alpha1.UsageBatch
		want    int
	}{
		"one that is in a batch":              {records: []v1alpha1.UsageRecord{priced("u1", november)}, batches: batches, want: 1},
		"one that is in two":                  {records: []v1alpha1.UsageRecord{priced("u1", november)}, batches: append(batches, batches...), want: 1},
		"one that is there twice":             {records: []v1alpha1.UsageRecord{priced("u1", november), in(priced("u1", november), "nvtopo-system")}, batches: batches, want: 2},
		"one that is in none":                 {records: []v1alpha1.UsageRecord{priced("u3", november)}, batches: batches},
		"one that came back without a status": {records: []v1alpha1.UsageRecord{restored(change(func(r *v1alpha1.UsageRecord) { r.Status = v1alpha1.UsageRecordStatus{} }))}, batches: batches, want: 1},
		"another pod's":                       {records: []v1alpha1.UsageRecord{change(func(r *v1alpha1.UsageRecord) { r.Spec.Pod = "other" })}, batches: batches},
		"another time's":                      {records: []v1alpha1.UsageRecord{change(func(r *v1alpha1.UsageRecord) { r.Spec.Start = metav1.NewTime(day(11, 2, 1)) })}, batches: batches},
		"no batches":                          {records: []v1alpha1.UsageRecord{priced("u1", november)}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Replaced(tc.records, tc.batches); len(got) != tc.want {
				t.Errorf("%d records, want %d", len(got), tc.want)
			}
		})
	}
}
