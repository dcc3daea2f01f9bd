// SPDX-License-Identifier: Apache-2.0

package accounting

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/billing"
)

// manyModels returns sessions of an hour of a GPU in November, each of a model of its own.
func manyModels(from, n int, invoice string) []v1alpha1.UsageRecord {
	out := make([]v1alpha1.UsageRecord, n)
	for i := range out {
		out[i] = marked(lasting(fmt.Sprintf("s%04d", from+i), "1", 3600), invoice)
		out[i].Spec.Model = fmt.Sprintf("M%04d", from+i)
	}
	return out
}

// page returns a page of November's invoice in the API.
func page(number int, total v1alpha1.Money, final bool) v1alpha1.Invoice {
	return invoice(billing.PageID(november, number), 11, total, final)
}

// TestStatementPages: an invoice with more lines than a page admits continues on the next one. All of
// its pages are used, each once.
func TestStatementPages(t *testing.T) {
	two, three := billing.PageID(november, 2), billing.PageID(november, 3)
	type want struct {
		Pages         map[string]string // sum of lines; "!" if it is due
		On            map[string]int    // how many sessions are on it
		Late          int
		Stale         []string
		Balance, Bill string
	}
	for name, tc := range map[string]struct {
		books Books
		want  want
	}{
		"600 lines": {
			Books{Records: manyModels(0, 600, "")},
			want{
				Pages: map[string]string{november: "512.00", two: "512.00", three: "176.00"}, On: map[string]int{november: 256, two: 256, three: 88},
				Balance: "-1200.00", Bill: "1200.00",
			},
		},
		"600 lines that are due": {
			Books{Records: manyModels(0, 600, ""), Now: day(12, 3, 0)},
			want{
				Pages: map[string]string{november: "512.00!", two: "512.00!", three: "176.00!"}, On: map[string]int{november: 256, two: 256, three: 88},
				Balance: "-1200.00", Bill: "1200.00",
			},
		},
		"the pages are final": {
			Books{
				Records:  slices.Concat(manyModels(0, 256, november), manyModels(256, 44, two)),
				Invoices: []v1alpha1.Invoice{page(1, "512.00", true), page(2, "88.00", true)}, Now: day(12, 3, 0),
			},
			want{Balance: "-600.00", Bill: "600.00"},
		},
		"killed after page 2 was closed: page 1 is as it was": {
			Books{
				Records:  slices.Concat(manyModels(0, 256, november), manyModels(256, 44, two)),
				Invoices: []v1alpha1.Invoice{page(1, "512.00", false), page(2, "88.00", true)}, Now: day(12, 3, 0),
			},
			want{Pages: map[string]string{november: "512.00!"}, On: map[string]int{november: 256}, Balance: "-600.00", Bill: "600.00"},
		},
		"likewise, and a session became known meanwhile: on a page that is not final": {
			Books{
				Records:  slices.Concat(manyModels(0, 256, november), manyModels(256, 44, two), manyModels(300, 1, "")),
				Invoices: []v1alpha1.Invoice{page(1, "512.00", false), page(2, "88.00", true)}, Now: day(12, 3, 0),
			},
			want{Pages: map[string]string{november: "512.00!", three: "2.00!"}, On: map[string]int{november: 256, three: 1}, Balance: "-602.00", Bill: "602.00"},
		},
		"page 1 is final: what becomes known is on the next month's": {
			Books{
				Records:  slices.Concat(manyModels(0, 256, november), manyModels(256, 44, two), manyModels(300, 1, "")),
				Invoices: []v1alpha1.Invoice{page(1, "512.00", true), page(2, "88.00", true)}, Now: day(12, 3, 0),
			},
			want{Pages: map[string]string{december: "2.00"}, On: map[string]int{december: 1}, Late: 1, Balance: "-602.00", Bill: "602.00"},
		},
		"one page is enough again": {
			Books{Records: manyModels(0, 3, ""), Invoices: []v1alpha1.Invoice{page(1, "512.00", false), page(2, "88.00", false)}},
			want{Pages: map[string]string{november: "6.00"}, On: map[string]int{november: 3}, Stale: []string{two}, Balance: "-6.00", Bill: "6.00"},
		},
		"what is marked with page 2 keeps it": {
			Books{Records: slices.Concat(manyModels(0, 3, ""), manyModels(300, 1, two)), Invoices: []v1alpha1.Invoice{page(1, "512.00", false), page(2, "88.00", false)}},
			want{Pages: map[string]string{november: "6.00", two: "2.00"}, On: map[string]int{november: 3, two: 1}, Balance: "-8.00", Bill: "8.00"},
		},
		"pages of an account that was deleted before they were closed": {
			Books{
				Records: slices.Concat(manyModels(0, 256, "inv-20261101-20261201-uid-b"), manyModels(256, 44, "inv-20261101-20261201-uid-b-page-2")),
				Invoices: []v1alpha1.Invoice{
					invoice("inv-20261101-20261201-uid-b", 11, "512.00", false), invoice("inv-20261101-20261201-uid-b-page-2", 11, "88.00", false),
					invoice("inv-20261001-20261101-uid-b-page-2", 10, "9.00", false),
				}, Now: day(12, 3, 0),
			},
			want{
				Pages: map[string]string{"inv-20261101-20261201-uid-b": "512.00!", "inv-20261101-20261201-uid-b-page-2": "88.00!"},
				On:    map[string]int{"inv-20261101-20261201-uid-b": 256, "inv-20261101-20261201-uid-b-page-2": 44},
				Stale: []string{"inv-20261001-20261101-uid-b-page-2"}, Balance: "-600.00", Bill: "600.00",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			tc.books.Account, tc.books.Prices, tc.books.Grace = account(), prices(), 24*time.Hour
			if tc.books.Now.IsZero() {
				tc.books.Now = day(11, 20, 0)
			}
			s, err := tc.books.Compute()
			if err != nil {
				t.Fatal(err)
			}
			bill, err := BillOf(&tc.books)
			if err != nil {
				t.Fatal(err)
			}
			got := want{Stale: s.Stale, Balance: s.Balance.String(), Bill: bill.Billed.String()}
			for i := range s.Invoices {
				v := &s.Invoices[i]
				put(&got.Pages, v.InvoiceID, string(v.Total), v.Finalized)
				if len(v.LineItems) > billing.MaxLines {
					t.Errorf("%s has %d lines", v.InvoiceID, len(v.LineItems))
				}
			}
			for _, session := range s.Sessions {
				if got.On == nil {
					got.On = map[string]int{}
				}
				got.On[session.Invoice]++
				if session.Late {
					got.Late++
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestPageDiscounts: discounts of a month use the hours on all of its pages, including final ones.
func TestPageDiscounts(t *testing.T) {
	two := billing.PageID(november, 2)
	books := Books{
		Account: account(), Grace: 24 * time.Hour, Now: day(12, 3, 0),
		Prices: prices(func(b *v1alpha1.PriceBookSpec) { b.DiscountScope = v1alpha1.ScopeBillingPeriod }),
	}
	cost := func() string {
		s, err := books.Compute()
		if err != nil {
			t.Fatal(err)
		}
		return string(s.Invoices[0].Total)
	}
	// 300 hours are a tenth off.
	books.Records = manyModels(0, 300, "")
	if got := cost(); got != "460.80" {
		t.Errorf("page 1 comes to %s, want 460.80", got)
	}
	books.Records = slices.Concat(manyModels(0, 256, november), manyModels(256, 44, two))
	books.Invoices = []v1alpha1.Invoice{page(1, "512.00", false), page(2, "79.20", true)}
	if got := cost(); got != "460.80" {
		t.Errorf("page 1 comes to %s once page 2 is final, want 460.80", got)
	}
	// Alone it would have no discount.
	books.Records = slices.Concat(manyModels(0, 50, november), manyModels(256, 60, two))
	if got := cost(); got != "90.00" {
		t.Errorf("50 hours beside 60 on a final page come to %s, want 90.00", got)
	}
}
