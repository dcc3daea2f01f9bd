// SPDX-License-Identifier: Apache-2.0

package invoicing

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/accounting"
)

// costs are a month's costs: the invoices, and each exported session.
type costs struct {
	Invoices, Sessions map[string]v1alpha1.Money
}

// monthOf bills a month of sessions, batched after batchAfter, with a price book that has these scopes
// one after the other. batched reports whether a session was in a batch while the month's invoice was
// open.
func monthOf(t *testing.T, batchAfter time.Duration, scopes ...v1alpha1.DiscountScope) (got costs, batched bool) {
	t.Helper()
	e := newTestEnv(t, &v1alpha1.TenantAccount{ObjectMeta: metav1.ObjectMeta{Name: "team-a", UID: "uid-a"}})
	e.r.batchAfter = batchAfter
	for i, scope := range scopes {
		start := day(11, 1+8*i)
		e.clock.SetTime(start)
		prices := &v1alpha1.PriceBook{}
		if err := e.Get(t.Context(), client.ObjectKey{Name: v1alpha1.DefaultPriceBook}, prices); err != nil {
			t.Fatal(err)
		}
		prices.Spec.DiscountScope = scope
		prices.Spec.Discounts = []v1alpha1.Discount{{ThresholdHours: "10", Multiplier: "0.9"}, {ThresholdHours: "50", Multiplier: "0.5"}}
		if err := e.Update(t.Context(), prices); err != nil {
			t.Fatal(err)
		}
		for k, hours := range []int{5, 20, 40} {
			name := fmt.Sprintf("%08d-0000-4000-8000-%012d", i, k)
			r := sold(name, 1)
			r.Spec.Tenant, r.Spec.Start = "team-a", metav1.NewTime(start.Add(-time.Duration(hours)*time.Hour))
			r.Status = v1alpha1.UsageRecordStatus{End: new(metav1.NewTime(start))}
			e.add(t, []client.Object{&r})
		}
		e.look(t, 3)
		e.clock.SetTime(start.AddDate(0, 0, 7).Add(2 * time.Hour)) // ready sessions are in batches now
		e.look(t, 3)
		var batches v1alpha1.UsageBatchList
		if err := e.List(t.Context(), &batches); err != nil {
			t.Fatal(err)
		}
		batched = batched || len(batches.Items) > 0
	}
	e.clock.SetTime(day(12, 3))
	e.look(t, 5)
	var records v1alpha1.UsageRecordList
	var batches v1alpha1.UsageBatchList
	var invoices v1alpha1.InvoiceList
	if err := errors.Join(e.List(t.Context(), &records), e.List(t.Context(), &batches), e.List(t.Context(), &invoices)); err != nil {
		t.Fatal(err)
	}
	got = costs{map[string]v1alpha1.Money{}, map[string]v1alpha1.Money{}}
	for i := range invoices.Items {
		v := &invoices.Items[i].Spec
		if !v.Finalized {
			t.Errorf("invoice %s is not final", v.InvoiceID)
		}
		got.Invoices[v.InvoiceID] = v.Total
	}
	in := accounting.InBatches(batches.Items)
	for _, r := range append(in, accounting.Unbatched(records.Items, batches.Items)...) {
		if other, ok := got.Sessions[r.Name]; ok && other != r.Status.Cost {
			t.Errorf("session %s costs %s and %s", r.Name, other, r.Status.Cost)
		}
		got.Sessions[r.Name] = r.Status.Cost
	}
	if batchAfter > 0 && len(in) != 3*len(scopes) {
		t.Errorf("in the end %d sessions are in batches, want %d", len(in), 3*len(scopes))
	}
	return got, batched
}

// TestRescopedMonth: a month with a change of the discounts' scope costs the same with batches and
// without, session by session.
func TestRescopedMonth(t *testing.T) {
	const alone, together = v1alpha1.ScopeSession, v1alpha1.ScopeBillingPeriod
	for name, scopes := range map[string][]v1alpha1.DiscountScope{
		"by session":                             {alone, alone},
		"by session, then by month":              {alone, together},
		"by month, then by session":              {together, alone},
		"by session, by month and by session":    {alone, together, alone},
		"by session, then by month to its end":   {alone, together, together},
		"by month, by session and then by month": {together, alone, together},
	} {
		t.Run(name, func(t *testing.T) {
			want, _ := monthOf(t, 0, scopes...)
			got, batched := monthOf(t, time.Hour, scopes...)
			if batched == (scopes[0] == together && scopes[1] == together) {
				t.Errorf("sessions were in batches while the invoice was open: %t", batched)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("without batches and with (-want,+got):\n%s", diff)
			}
		})
	}
}
