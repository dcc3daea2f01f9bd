// SPDX-License-Identifier: Apache-2.0

package accounting

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/billing"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

func day(month, day, hour int) time.Time {
	return time.Date(2026, time.Month(month), day, hour, 0, 0, 0, time.UTC)
}

// prices returns the price book of the requirement.
func prices(change ...func(*v1alpha1.PriceBookSpec)) *v1alpha1.PriceBook {
	least := int64(60)
	b := &v1alpha1.PriceBook{ObjectMeta: metav1.ObjectMeta{Name: "default"}, Spec: v1alpha1.PriceBookSpec{
		Currency: "USD", Prices: []v1alpha1.Price{{Resource: "nvidia.com/gpu", PricePerHour: "2.0"}}, MinPeriodSeconds: &least,
		Discounts: []v1alpha1.Discount{
			{ThresholdHours: "100", Multiplier: "0.9"}, {ThresholdHours: "500", Multiplier: "0.8"}, {ThresholdHours: "1000", Multiplier: "0.7"},
		},
		Mode: v1alpha1.AllUnits, DiscountScope: v1alpha1.ScopeSession,
	}}
	for _, f := range change {
		f(&b.Spec)
	}
	return b
}

func account(amounts ...v1alpha1.Money) *v1alpha1.TenantAccount {
	a := &v1alpha1.TenantAccount{ObjectMeta: metav1.ObjectMeta{Name: "team-a", UID: "uid-a"}}
	for i, amount := range amounts {
		a.Spec.Credits = append(a.Spec.Credits, v1alpha1.Credit{ID: "c" + string(rune('0'+i)), Amount: amount, At: metav1.NewTime(day(10, 1, 0))})
	}
	return a
}

// session returns a record of quantity GPUs; one whose end is zero is open.
func session(name string, quantity v1alpha1.Decimal, start, end time.Time) v1alpha1.UsageRecord {
	r := v1alpha1.UsageRecord{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "team-a"},
		Spec: v1alpha1.UsageRecordSpec{
			Tenant: "team-a", Pool: "training", Pod: name, PodUID: types.UID(name), Node: "n1",
			Resource: "nvidia.com/gpu", Quantity: quantity, Start: metav1.NewTime(start),
		},
	}
	if !end.IsZero() {
		at := metav1.NewTime(end)
		r.Status.End = &at
	}
	return r
}

func lasting(name string, quantity v1alpha1.Decimal, seconds int) v1alpha1.UsageRecord {
	start := day(11, 2, 0)
	return session(name, quantity, start, start.Add(time.Duration(seconds)*time.Second))
}

func marked(r v1alpha1.UsageRecord, invoice string) v1alpha1.UsageRecord {
	r.Status.Invoice = invoice
	return r
}

// restored makes a record look restored from a backup: its annotation is days older than its object.
func restored(r v1alpha1.UsageRecord) v1alpha1.UsageRecord {
	r.Annotations = map[string]string{names.AnnotationRecorded: day(11, 1, 0).Format(time.RFC3339)}
	r.CreationTimestamp = metav1.NewTime(day(11, 4, 0))
	return r
}

func of(r v1alpha1.UsageRecord, resource string) v1alpha1.UsageRecord {
	r.Spec.Resource = resource
	return r
}

const (
	october  = "inv-20261001-20261101-uid-a"
	november = "inv-20261101-20261201-uid-a"
	december = "inv-20261201-20270101-uid-a"
)

// invoice returns an invoice of the API, with one line.
func invoice(id string, month int, total v1alpha1.Money, final bool) v1alpha1.Invoice {
	p := Month(day(month, 1, 0))
	return v1alpha1.Invoice{ObjectMeta: metav1.ObjectMeta{Name: id}, Spec: v1alpha1.InvoiceSpec{
		InvoiceID: id, Tenant: "team-a", Currency: "USD", Total: total, Finalized: final,
		Period: v1alpha1.BillingPeriod{Start: metav1.NewTime(p.Start), End: metav1.NewTime(p.End)},
		LineItems: []v1alpha1.LineItem{
			{Resource: "nvidia.com/gpu", Hours: "1", UnitPrice: "2", Discount: "0", Subtotal: total, Sessions: 1},
		},
		GeneratedAt: metav1.NewTime(p.End),
	}}
}

// Scenario 44: the costs of sessions at the requirement's prices.
func TestCosts(t *testing.T) {
	for name, tc := range map[string]struct {
		quantity v1alpha1.Decimal
		seconds  int
		resource string
		want     string
	}{
		"4 GPUs for 2 s: the minimum of 60 s": {quantity: "4", seconds: 2, want: "0.13"},
		"1 GPU for 59 s: the minimum":         {quantity: "1", seconds: 59, want: "0.03"},
		"1 GPU for 60 s":                      {quantity: "1", seconds: 60, want: "0.03"},
		"8 GPUs for half an hour":             {quantity: "8", seconds: 1800, want: "8.00"},
		"100 hours: a tenth off":              {quantity: "4", seconds: 90_000, want: "180.00"},
		"500 hours: a fifth off":              {quantity: "8", seconds: 225_000, want: "800.00"},
		"1000 hours: three tenths off":        {quantity: "8", seconds: 450_000, want: "1400.00"},
		"a slice at the price of its device":  {quantity: "0.428", seconds: 3600, resource: "nvidia.com/mig-3g.40gb", want: "0.86"},
		"a turn of four":                      {quantity: "0.25", seconds: 3600, resource: "nvidia.com/gpu.shared", want: "0.50"},
		"what has no price":                   {quantity: "8", seconds: 3600, resource: "habana.ai/gaudi", want: "0.00"},
	} {
		t.Run(name, func(t *testing.T) {
			r := lasting("s", tc.quantity, tc.seconds)
			if tc.resource != "" {
				r = of(r, tc.resource)
			}
			b := Books{Account: account(), Prices: prices(), Records: []v1alpha1.UsageRecord{r}, Now: day(11, 20, 0)}
			got, err := b.Compute()
			if err != nil {
				t.Fatal(err)
			}
			if cost := got.Sessions[0].Charge.Cost.String(); cost != tc.want {
				t.Errorf("it costs %s, want %s", cost, tc.want)
			}
			if total := string(got.Invoices[0].Total); total != tc.want {
				t.Errorf("the invoice says %s, want %s", total, tc.want)
			}
		})
	}
}

func TestStatement(t *testing.T) {
	type want struct {
		Balance, Billed, Accrued string
		Invoices                 map[string]string // content of each; a final one ends in !
		On                       map[string]string // the invoice of each session; a late one ends in !
		Unpriced                 []string
		Wrong                    int
		Stale                    []string
		Held                     []string
	}
	overMidnight := session("over", "8", day(10, 31, 23), day(11, 1, 1))
	gone := session("s1", "4", day(11, 1, 0), day(11, 2, 1))
	gone.DeletionTimestamp = &metav1.Time{Time: day(11, 3, 0)}
	kept := session("s1", "4", day(11, 1, 0), day(11, 2, 1))
	kept.Namespace = "nvtopo-system"
	for name, tc := range map[string]struct {
		books Books
		want  want
	}{
		"a credit of 1000 and a charge of 180": {
			Books{Account: account("1000"), Records: []v1alpha1.UsageRecord{lasting("s", "4", 90_000)}},
			want{Balance: "820.00", Billed: "180.00", Accrued: "0.00", Invoices: map[string]string{november: "180.00"}, On: map[string]string{"s": november}},
		},
		"twice the same record, in the namespace that goes and where it is kept": {
			Books{Account: account("1000"), Records: []v1alpha1.UsageRecord{gone, kept}},
			want{Balance: "820.00", Billed: "180.00", Accrued: "0.00", Invoices: map[string]string{november: "180.00"}, On: map[string]string{"s1": november}},
		},
		"over midnight into another month: the month of its end, all of it": {
			Books{Account: account(), Records: []v1alpha1.UsageRecord{overMidnight}},
			want{Balance: "-32.00", Billed: "32.00", Accrued: "0.00", Invoices: map[string]string{november: "32.00"}, On: map[string]string{"over": november}},
		},
		"one that goes on is accrued, and on no invoice": {
			Books{Account: account("10"), Records: []v1alpha1.UsageRecord{session("open", "1", day(11, 19, 23), time.Time{})}},
			want{Balance: "10.00", Billed: "0.00", Accrued: "2.00"},
		},
		"one that began before the month and goes on since": { // the requirement's summary lost such a one
			Books{Account: account(), Records: []v1alpha1.UsageRecord{session("open", "1", day(10, 1, 0), time.Time{})}},
			want{Balance: "0.00", Billed: "0.00", Accrued: "1680.00"},
		},
		"one that was restored without its status is on no invoice and not accrued": {
			Books{Account: account("10"), Records: []v1alpha1.UsageRecord{
				restored(session("r", "1", day(11, 1, 0), time.Time{})), restored(session("told", "1", day(11, 1, 0), day(11, 1, 1))),
			}},
			want{Balance: "8.00", Billed: "2.00", Accrued: "0.00", Invoices: map[string]string{november: "2.00"}, On: map[string]string{"told": november}, Held: []string{"team-a/r"}},
		},
		"last month's invoice within the grace": {
			Books{Account: account(), Records: []v1alpha1.UsageRecord{lasting("s", "1", 3600)}, Now: day(12, 1, 23)},
			want{Balance: "-2.00", Billed: "2.00", Accrued: "0.00", Invoices: map[string]string{november: "2.00"}, On: map[string]string{"s": november}},
		},
		"last month's invoice after it": {
			Books{Account: account(), Records: []v1alpha1.UsageRecord{lasting("s", "1", 3600)}, Now: day(12, 2, 0)},
			want{Balance: "-2.00", Billed: "2.00", Accrued: "0.00", Invoices: map[string]string{november: "2.00!"}, On: map[string]string{"s": november}},
		},
		"a final invoice counts once, with its records or without": {
			Books{
				Account: account("10"), Records: []v1alpha1.UsageRecord{marked(lasting("s", "1", 3600), november)},
				Invoices: []v1alpha1.Invoice{invoice(november, 11, "2.00", true), invoice(october, 10, "3.00", true)}, Now: day(12, 3, 0),
			},
			want{Balance: "5.00", Billed: "5.00", Accrued: "0.00"},
		},
		"what becomes known after the invoice is final is on the next": {
			Books{
				Account: account(), Records: []v1alpha1.UsageRecord{marked(lasting("s", "1", 3600), november), lasting("late", "2", 3600)},
				Invoices: []v1alpha1.Invoice{invoice(november, 11, "2.00", true)}, Now: day(12, 3, 0),
			},
			want{Balance: "-6.00", Billed: "6.00", Accrued: "0.00", Invoices: map[string]string{december: "4.00"}, On: map[string]string{"late": december + "!"}},
		},
		"and stays there": {
			Books{
				Account: account(), Records: []v1alpha1.UsageRecord{marked(lasting("late", "2", 3600), december)},
				Invoices: []v1alpha1.Invoice{invoice(november, 11, "2.00", true)}, Now: day(12, 3, 0),
			},
			want{Balance: "-6.00", Billed: "6.00", Accrued: "0.00", Invoices: map[string]string{december: "4.00"}, On: map[string]string{"late": december}},
		},
		"records of a month that nobody billed yet, long after": {
			Books{Account: account(), Records: []v1alpha1.UsageRecord{lasting("s", "1", 3600)}, Now: day(12, 20, 0)},
			want{Balance: "-2.00", Billed: "2.00", Accrued: "0.00", Invoices: map[string]string{november: "2.00!"}, On: map[string]string{"s": november}},
		},
		"the controller was killed between marking and closing": {
			Books{
				Account: account(), Records: []v1alpha1.UsageRecord{marked(lasting("s", "1", 3600), november), lasting("new", "1", 3600)},
				Invoices: []v1alpha1.Invoice{invoice(november, 11, "2.00", false)}, Now: day(12, 3, 0),
			},
			want{Balance: "-4.00", Billed: "4.00", Accrued: "0.00", Invoices: map[string]string{november: "4.00!"}, On: map[string]string{"s": november, "new": november}},
		},
		"an open invoice whose records are gone is empty": {
			Books{Account: account(), Invoices: []v1alpha1.Invoice{invoice(november, 11, "2.00", false)}},
			want{Balance: "0.00", Billed: "0.00", Accrued: "0.00", Invoices: map[string]string{november: "0.00"}},
		},
		"the invoices of an account that was made anew": {
			Books{
				Account: account(), Records: []v1alpha1.UsageRecord{lasting("s", "1", 3600)},
				Invoices: []v1alpha1.Invoice{invoice("inv-20261101-20261201-old", 11, "9.00", false), invoice("inv-20261001-20261101-old", 10, "3.00", true)},
			},
			want{
				Balance: "-5.00", Billed: "5.00", Accrued: "0.00", Invoices: map[string]string{november: "2.00"},
				On: map[string]string{"s": november}, Stale: []string{"inv-20261101-20261201-old"},
			},
		},
		"other tenants' records and invoices": {
			Books{
				Account:  &v1alpha1.TenantAccount{ObjectMeta: metav1.ObjectMeta{Name: "team-b", UID: "uid-b"}},
				Records:  []v1alpha1.UsageRecord{lasting("s", "1", 3600)},
				Invoices: []v1alpha1.Invoice{invoice(october, 10, "3.00", true)},
			},
			want{Balance: "0.00", Billed: "0.00", Accrued: "0.00"},
		},
		"without a price, and one that goes on": {
			Books{Account: account(), Records: []v1alpha1.UsageRecord{
				of(lasting("s", "1", 3600), "habana.ai/gaudi"), of(session("open", "1", day(11, 19, 0), time.Time{}), "amd.com/gpu"),
			}},
			want{
				Balance: "0.00", Billed: "0.00", Accrued: "0.00", Invoices: map[string]string{november: "0.00"},
				On: map[string]string{"s": november}, Unpriced: []string{"amd.com/gpu", "habana.ai/gaudi"},
			},
		},
		"the account was deleted while an invoice of it was closed: it is closed": {
			Books{
				Account: account(), Records: []v1alpha1.UsageRecord{marked(lasting("s", "1", 3600), "inv-20261101-20261201-uid-b"), lasting("t", "2", 3600)},
				Invoices: []v1alpha1.Invoice{invoice("inv-20261101-20261201-uid-b", 11, "7.00", false), invoice("inv-20261201-20270101-uid-b", 12, "1.00", false)}, Now: day(12, 3, 0),
			},
			want{
				Balance: "-6.00", Billed: "6.00", Accrued: "0.00", Invoices: map[string]string{"inv-20261101-20261201-uid-b": "2.00!", november: "4.00!"},
				On: map[string]string{"s": "inv-20261101-20261201-uid-b", "t": november}, Stale: []string{"inv-20261201-20270101-uid-b"},
			},
		},
		"likewise, and the invoice was deleted": {
			Books{Account: account(), Records: []v1alpha1.UsageRecord{marked(lasting("s", "1", 3600), "inv-20261101-20261201-uid-b")}, Now: day(12, 3, 0)},
			want{
				Balance: "-2.00", Billed: "2.00", Accrued: "0.00", Invoices: map[string]string{"inv-20261101-20261201-uid-b": "2.00!"},
				On: map[string]string{"s": "inv-20261101-20261201-uid-b"},
			},
		},
		"a record that cannot be billed stands in no other's way": {
			Books{Account: account(), Records: []v1alpha1.UsageRecord{lasting("s", "1", 3600), lasting("bad", "many", 3600), marked(lasting("lost", "1", 3600), "inv-of-nobody")}},
			want{Balance: "-2.00", Billed: "2.00", Accrued: "0.00", Invoices: map[string]string{november: "2.00"}, On: map[string]string{"s": november}, Wrong: 2},
		},
	} {
		t.Run(name, func(t *testing.T) {
			tc.books.Prices, tc.books.Grace = prices(), 24*time.Hour
			if tc.books.Now.IsZero() {
				tc.books.Now = day(11, 20, 0)
			}
			s, err := tc.books.Compute()
			if err != nil {
				t.Fatal(err)
			}
			got := want{Balance: s.Balance.String(), Billed: s.Billed.String(), Accrued: s.Accrued.String(), Unpriced: s.Unpriced(), Wrong: len(s.Wrong), Stale: s.Stale}
			for _, record := range s.Held {
				got.Held = append(got.Held, record.String())
			}
			for _, v := range s.Invoices {
				put(&got.Invoices, v.InvoiceID, string(v.Total), v.Finalized)
			}
			for _, session := range s.Sessions {
				put(&got.On, session.Record.Name, session.Invoice, session.Late)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("want - got +\n%s", diff)
			}
		})
	}
}

func put(m *map[string]string, key, value string, mark bool) {
	if *m == nil {
		*m = map[string]string{}
	}
	if mark {
		value += "!"
	}
	(*m)[key] = value
}

func TestMalformedRecords(t *testing.T) {
	for name, tc := range map[string]struct {
		books Books
		want  string
	}{
		"a credit":        {Books{Account: account("1", "one"), Prices: prices()}, "credits[1].amount"},
		"a final invoice": {Books{Account: account(), Prices: prices(), Invoices: []v1alpha1.Invoice{brokenInvoice()}}, "add up"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := tc.books.Compute(); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want something about %q", err, tc.want)
			}
		})
	}
}

// fixed sets the fixed price, seconds and cost of a record.
func fixed(r v1alpha1.UsageRecord, price v1alpha1.Decimal, seconds int64, cost v1alpha1.Money) v1alpha1.UsageRecord {
	r.Status.UnitPrice, r.Status.BilledSeconds, r.Status.Cost = price, seconds, cost
	return r
}

// TestNoPrices: without a readable price book, an account has its credits, final invoices and the
// sessions priced before, and nothing is invoiced.
func TestNoPrices(t *testing.T) {
	books := Books{
		Account: account("1000"), Grace: 24 * time.Hour, Now: day(12, 20, 0),
		Records: []v1alpha1.UsageRecord{
			fixed(lasting("before", "1", 3600), "2.5", 3600, "2.50"), lasting("since", "8", 3600), session("open", "1", day(12, 19, 0), time.Time{}),
		},
		Invoices: []v1alpha1.Invoice{invoice(october, 10, "3.00", true), invoice(november, 11, "2.50", false)},
	}
	named := account("1000")
	named.Annotations = map[string]string{v1alpha1.AnnotationPriceBook: "dear"}
	for name, tc := range map[string]struct {
		account  *v1alpha1.TenantAccount
		prices   *v1alpha1.PriceBook
		want     string
		currency string
	}{
		"there is none":             {account("1000"), nil, "there is no PriceBook default: make it, or name another one in the annotation pool.nvtopo.dev/price-book of TenantAccount team-a", "USD"},
		"there is none of the name": {named, nil, "there is no PriceBook dear: make it", "USD"},
		"a price that is no number": {account("1000"), prices(func(s *v1alpha1.PriceBookSpec) { s.Prices[0].PricePerHour = "two" }), "PriceBook default: prices[0].pricePerHour", "USD"},
		"a time that is none":       {account("1000"), prices(func(s *v1alpha1.PriceBookSpec) { s.Prices[0].ValidFrom = "2026-02-30T00:00:00Z" }), "prices[0].validFrom: want a time such as", "USD"},
		"one in another currency": {
			account("1000"), prices(func(s *v1alpha1.PriceBookSpec) { s.Currency = "EUR" }), "PriceBook default is in EUR, and invoice " + october + " of team-a in USD", "USD",
		},
		"two mistakes: the second here": {account("1000"), prices(func(s *v1alpha1.PriceBookSpec) { s.Discounts[2].Multiplier, s.Prices[0].PricePerHour = "x", "y" }), "discounts[2].multiplier", "USD"},
	} {
		t.Run(name, func(t *testing.T) {
			b := books
			b.Account, b.Prices = tc.account, tc.prices
			s, err := b.Compute()
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(s.NoPrices, tc.want) || len(s.Invoices) > 0 || s.Settles() {
				t.Errorf("it says %q, and %d invoices, want %q and none", s.NoPrices, len(s.Invoices), tc.want)
			}
			if got := s.Balance.String() + " " + s.Billed.String() + " " + s.Accrued.String(); got != "994.50 5.50 0.00" {
				t.Errorf("balance, billed, accrued are %s, want 994.50 5.50 0.00", got)
			}
			bill, err := BillOf(&b)
			if err != nil {
				t.Fatal(err)
			}
			if bill.NoPrices != s.NoPrices || bill.Currency != tc.currency || bill.Balance.String() != "994.50" {
				t.Errorf("the bill says %+v", bill)
			}
		})
	}
}

// TestPriceChange: a session priced at its end keeps its price on the invoice, on the bill and in the
// balance, whatever the later book. Sessions without a price get the book's.
func TestPriceChange(t *testing.T) {
	dear := func(s *v1alpha1.PriceBookSpec) { s.Prices[0].PricePerHour = "5" }
	later := func(s *v1alpha1.PriceBookSpec) {
		s.Prices = append(s.Prices, v1alpha1.Price{Resource: "nvidia.com/gpu", PricePerHour: "5", ValidFrom: "2026-11-02T02:00:00Z"})
	}
	long := func(s *v1alpha1.PriceBookSpec) { *s.MinPeriodSeconds = 7200 }
	records := []v1alpha1.UsageRecord{
		lasting("hour", "1", 3600), lasting("minute", "1", 30), lasting("hundred", "100", 3600), of(lasting("free", "1", 3600), "amd.com/gpu"),
		of(lasting("slice", "0.5", 3600), "nvidia.com/mig-3g.40gb"),
	}
	after := slices.Concat(records, []v1alpha1.UsageRecord{lasting("after", "1", 7200), session("open", "1", day(11, 19, 23), time.Time{})})
	before := Books{Account: account("1000"), Prices: prices(), Records: records, Now: day(11, 2, 2)}
	s, err := before.Compute()
	if err != nil {
		t.Fatal(err)
	}
	for i := range s.Sessions {
		for k := range after {
			if after[k].Name == s.Sessions[i].Record.Name {
				Fix(&after[k].Status, &s.Sessions[i].Charge)
			}
		}
	}
	for name, tc := range map[string]struct {
		prices *v1alpha1.PriceBook
		want   map[string]string
		lines  string // price × hours = subtotal
		accrue string
		cost   v1alpha1.Money // of the first record, if it is another
	}{
		"the same book": {
			prices(),
			map[string]string{"hour": "2.00", "minute": "0.03", "hundred": "180.00", "free": "0.00", "slice": "1.00", "after": "4.00"},
			"0×1=0.00 2×103.016667=186.03 2×0.5=1.00", "2.00", "",
		},
		"a price changed in its place": {
			prices(dear),
			map[string]string{"hour": "2.00", "minute": "0.03", "hundred": "180.00", "free": "0.00", "slice": "1.00", "after": "10.00"},
			"0×1=0.00 2×101.016667=182.03 5×2=10.00 2×0.5=1.00", "5.00", "",
		},
		"a later price": {
			prices(later),
			map[string]string{"hour": "2.00", "minute": "0.03", "hundred": "180.00", "free": "0.00", "slice": "1.00", "after": "10.00"},
			"0×1=0.00 2×101.016667=182.03 5×2=10.00 2×0.5=1.00", "5.00", "",
		},
		"no discounts any more, and a longer minimum": {
			prices(long, func(s *v1alpha1.PriceBookSpec) { s.Discounts = nil }),
			map[string]string{"hour": "2.00", "minute": "0.03", "hundred": "180.00", "free": "0.00", "slice": "1.00", "after": "4.00"},
			"0×2=0.00 2×103.016667=186.03 2×0.5=1.00", "4.00", "",
		},
		"a price of what had none": {
			prices(func(s *v1alpha1.PriceBookSpec) {
				s.Prices = append(s.Prices, v1alpha1.Price{Resource: "amd.com/gpu", PricePerHour: "7"})
			}),
			map[string]string{"hour": "2.00", "minute": "0.03", "hundred": "180.00", "free": "7.00", "slice": "1.00", "after": "4.00"},
			"7×1=7.00 2×103.016667=186.03 2×0.5=1.00", "2.00", "",
		},
		"a cost that a controller from before fixed prices has computed anew": {
			prices(),
			map[string]string{"hour": "2.00", "minute": "0.03", "hundred": "180.00", "free": "0.00", "slice": "1.00", "after": "4.00"},
			"0×1=0.00 2×103.016667=186.03 2×0.5=1.00", "2.00", "5.00",
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := Books{Account: account("1000"), Prices: tc.prices, Records: slices.Clone(after), Now: day(11, 20, 0)}
			if tc.cost != "" {
				b.Records[0].Status.Cost = tc.cost
			}
			s, err := b.Compute()
			if err != nil {
				t.Fatal(err)
			}
			got, lines := map[string]string{}, []string{}
			for i := range s.Sessions {
				got[s.Sessions[i].Record.Name] = s.Sessions[i].Charge.Cost.String()
			}
			for _, l := range s.Invoices[0].LineItems {
				lines = append(lines, string(l.UnitPrice)+"×"+string(l.Hours)+"="+string(l.Subtotal))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("costs: want - got +\n%s", diff)
			}
			if diff := cmp.Diff(tc.lines, strings.Join(lines, " ")); diff != "" {
				t.Errorf("lines: want - got +\n%s", diff)
			}
			if s.Accrued.String() != tc.accrue {
				t.Errorf("accrued %s, want %s", s.Accrued, tc.accrue)
			}
			agree(t, &b, s)
		})
	}
}

// agree checks that bill, invoice and balance have the same costs.
func agree(t *testing.T, b *Books, s *Statement) {
	t.Helper()
	bill, err := BillOf(b)
	if err != nil {
		t.Fatal(err)
	}
	var sum billing.Amount
	for _, l := range bill.Lines {
		sum = sum.Plus(l.Cost)
	}
	if total := string(s.Invoices[0].Total); sum.String() != total || bill.Billed.String() != total || s.Billed.String() != total {
		t.Errorf("the bill's lines are %s, billed %s and %s, the invoice %s", sum, bill.Billed, s.Billed, total)
	}
}

func brokenInvoice() v1alpha1.Invoice {
	v := invoice(november, 11, "2.00", true)
	v.Spec.Total = "3.00"
	return v
}

func TestExpired(t *testing.T) {
	exported := func(v v1alpha1.Invoice, at time.Time) v1alpha1.Invoice {
		v.Status.ExportedAt = &metav1.Time{Time: at}
		return v
	}
	r := marked(lasting("s", "1", 3600), november)
	for name, tc := range map[string]struct {
		record  v1alpha1.UsageRecord
		invoice v1alpha1.Invoice
		want    bool
	}{
		"exported so long ago":    {r, exported(invoice(november, 11, "2.00", true), day(12, 3, 0)), true},
		"exported later":          {r, exported(invoice(november, 11, "2.00", true), day(12, 3, 1)), false},
		"never exported":          {r, invoice(november, 11, "2.00", true), false},
		"exported while open":     {r, exported(invoice(november, 11, "2.00", false), day(12, 3, 0)), false},
		"on another invoice":      {r, exported(invoice(october, 10, "2.00", true), day(12, 3, 0)), false},
		"on no invoice":           {lasting("s", "1", 3600), exported(invoice(november, 11, "2.00", true), day(12, 3, 0)), false},
		"marked and not yet over": {marked(session("s", "1", day(11, 2, 0), time.Time{}), november), exported(invoice(november, 11, "2.00", true), day(12, 3, 0)), false},
	} {
		t.Run(name, func(t *testing.T) {
			tally := NewTally()
			tally.SetRecord(&tc.record)
			tally.SetInvoice(&tc.invoice)
			got, _ := tally.Expired(48*time.Hour, day(12, 5, 0))
			if (len(got) == 1) != tc.want {
				t.Errorf("expired: %d records, want %v", len(got), tc.want)
			}
		})
	}
}

// TestLenientBooks: BookOf reads books that earlier schemas admitted. Blanks in a model are read as
// dashes. A price is left out if its model or resource has a name that no device can have.
func TestLenientBooks(t *testing.T) {
	price := func(model, perHour string) v1alpha1.Price {
		return v1alpha1.Price{Resource: "nvidia.com/gpu", Model: model, PricePerHour: v1alpha1.Decimal(perHour)}
	}
	for name, tc := range map[string]struct {
		prices []v1alpha1.Price
		want   map[string]string // model: price
	}{
		"blanks":                       {[]v1alpha1.Price{price("NVIDIA H100", "02.50")}, map[string]string{"NVIDIA-H100": "2.5"}},
		"blanks beside dashes: dashes": {[]v1alpha1.Price{price("NVIDIA H100", "2"), price("NVIDIA-H100", "3")}, map[string]string{"NVIDIA-H100": "3"}},
		"blanks in two ways":           {[]v1alpha1.Price{price("NVIDIA H100 ", "2"), price("NVIDIA H100", "3")}, map[string]string{"NVIDIA-H100": "3"}},
		"no letter at all":             {[]v1alpha1.Price{price(" ™", "2"), price("", "1")}, map[string]string{"": "1"}},
		"no such resource":             {[]v1alpha1.Price{{Resource: "-x/gpu", PricePerHour: "1"}}, map[string]string{}},
	} {
		t.Run(name, func(t *testing.T) {
			book, err := BookOf(&v1alpha1.PriceBook{Spec: v1alpha1.PriceBookSpec{
				Currency: "USD", Prices: tc.prices, Mode: v1alpha1.AllUnits, DiscountScope: v1alpha1.ScopeSession,
			}})
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]string{}
			for _, p := range book.Prices {
				got[p.Model] = p.PerHour.String()
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// TestNeverBilled: the amounts of an account that the controller has not billed yet have no time.
func TestNeverBilled(t *testing.T) {
	a := &v1alpha1.TenantAccount{ObjectMeta: metav1.ObjectMeta{Name: "new"}}
	text, err := json.Marshal(SummaryOf(a, nil))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "asOf") {
		t.Errorf("%s, want no asOf", text)
	}
}
