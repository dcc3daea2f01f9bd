// SPDX-License-Identifier: Apache-2.0

package billing

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var november = Period{Start: epoch, End: epoch.AddDate(0, 1, 0)}

func teamA() Account { return Account{Tenant: "team-a", UID: "7b1c"} }

func invoice(t *testing.T, b Book, a Account, p Period, sessions []Session) Invoice {
	t.Helper()
	v, err := NewInvoice(b, a, p, sessions, p.End)
	if err != nil {
		t.Fatal(err)
	}
	if err := v.Validate(); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestInvoice(t *testing.T) {
	slice := held(t, "slice", "0.428", 3600)
	slice.Resource, slice.Estimated = "nvidia.com/mig-3g.40gb", true
	h100 := held(t, "h100", "8", 1800)
	h100.Model = "H100"
	open := held(t, "open", "1", 0)
	open.End = time.Time{}
	theirs := held(t, "theirs", "1", 3600)
	theirs.Tenant = "team-b"
	sessions := []Session{
		held(t, "long", "4", 90_000), slice, h100, held(t, "short", "1", 59), open, theirs,
	}
	want := Invoice{
		ID: "inv-20261101-20261201-7b1c", Tenant: "team-a", Period: november, Currency: "USD",
		Lines: []Line{
			{Resource: "nvidia.com/gpu", Hours: decimal(t, "100.016667"), UnitPrice: whole(2), Discount: amount(t, "20"), Subtotal: amount(t, "180.03"), Sessions: 2},
			{Resource: "nvidia.com/gpu", Model: "H100", Hours: whole(4), UnitPrice: whole(2), Subtotal: amount(t, "8"), Sessions: 1},
			{Resource: "nvidia.com/mig-3g.40gb", Hours: decimal(t, "0.428"), Sessions: 1, Estimated: 1, NoPrice: true},
		},
		Total: amount(t, "188.03"), GeneratedAt: november.End,
	}
	if diff := cmp.Diff(want, invoice(t, book(t, requirementBook), teamA(), november, sessions)); diff != "" {
		t.Errorf("(-want,+got):\n%s", diff)
	}
}

// TestInvoicePrices: sessions of two prices are two lines, and so are those that ended before the first
// price was valid.
func TestInvoicePrices(t *testing.T) {
	b := book(t, `{"currency": "USD", "prices": [
		{"resource": "nvidia.com/gpu", "validFrom": "2026-11-01T02:00:00Z", "pricePerHour": "10"},
		{"resource": "nvidia.com/gpu", "validFrom": "2026-11-01T01:00:00Z", "pricePerHour": "0"},
		{"resource": "nvidia.com/gpu", "validFrom": "2026-11-01T03:00:00Z", "pricePerHour": "9.5"}]}`)
	want := []Line{
		{Resource: "nvidia.com/gpu", Hours: decimal(t, "0.5"), Sessions: 1, NoPrice: true},
		{Resource: "nvidia.com/gpu", Hours: whole(1), Sessions: 1},
		{Resource: "nvidia.com/gpu", Hours: whole(7), UnitPrice: decimal(t, "9.5"), Subtotal: amount(t, "66.5"), Sessions: 2},
		{Resource: "nvidia.com/gpu", Hours: whole(2), UnitPrice: whole(10), Subtotal: amount(t, "20"), Sessions: 1},
	}
	v := invoice(t, b, teamA(), november, []Session{
		held(t, "a", "1", 1800), held(t, "b", "1", 3600), held(t, "c", "1", 7200), held(t, "d", "1", 10800), held(t, "e", "1", 14400),
	})
	if diff := cmp.Diff(want, v.Lines); diff != "" {
		t.Errorf("(-want,+got):\n%s", diff)
	}
}

// TestSessionInvoice: a session is on the invoice of the period in which it ends.
func TestSessionInvoice(t *testing.T) {
	october := Period{Start: epoch.AddDate(0, -1, 0), End: epoch}
	id := InvoiceID(teamA(), november)
	cases := map[string]struct {
		start, end time.Time // end zero: open
		invoice    string
		want       bool
	}{
		"ends in the period":                        {start: epoch, end: epoch.Add(1), want: true},
		"began before it":                           {start: epoch.AddDate(0, -2, 0), end: epoch, want: true},
		"ends at the end, which is the next period": {start: epoch, end: november.End},
		"ends just before the end":                  {start: epoch, end: november.End.Add(-1), want: true},
		"ended before it":                           {start: epoch.AddDate(0, -2, 0), end: epoch.Add(-1)},
		"is open":                                   {start: epoch},
		"is on another invoice":                     {start: epoch, end: epoch.Add(1), invoice: InvoiceID(teamA(), october)},
		"became known late and was put on this one": {start: epoch.AddDate(0, -2, 0), end: epoch.AddDate(0, -1, 0), invoice: id, want: true},
		"is on this one already":                    {start: epoch, end: epoch.Add(1), invoice: id, want: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := held(t, "s", "1", 0)
			s.Start, s.End, s.Invoice = tc.start, tc.end, tc.invoice
			if got := len(OnInvoice(teamA(), november, []Session{s})) == 1; got != tc.want {
				t.Errorf("on the invoice: %t, want %t", got, tc.want)
			}
		})
	}
}

// TestInvoiceSums: for any sessions, each invoice adds up, its lines are those of its charges, and the
// invoices of all periods and tenants contain each session once.
func TestInvoiceSums(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 11))
		plain := randomBook(rng)
		b := plain.book(t)
		var sessions []Session
		for _, s := range randomSessions(rng, 60) {
			sessions = append(sessions, s.session(t))
		}
		var total Amount
		count := 0
		for day := epoch; day.Before(epoch.AddDate(0, 0, 3)); day = day.AddDate(0, 0, 1) {
			p := Period{Start: day, End: day.AddDate(0, 0, 1)}
			for _, tenant := range []string{"team-a", "team-b"} {
				v := invoice(t, b, Account{Tenant: tenant, UID: tenant + "-uid"}, p, sessions)
				total = total.Plus(v.Total)
				for _, l := range v.Lines {
					count += l.Sessions
				}
			}
		}
		if count != len(sessions) {
			t.Fatalf("seed %d: %d sessions on the invoices, want %d", seed, count, len(sessions))
		}
		if plain.period {
			continue // the discounts are of each day
		}
		charges, err := Rate(b, sessions)
		if err != nil {
			t.Fatal(err)
		}
		if want := Sum(charges); !total.Equal(want) {
			t.Fatalf("seed %d: the invoices' total is %s, want %s", seed, total, want)
		}
	}
}

// TestInterruptedInvoice: an invoice is made in three steps: computed, written on each session, made
// final. A program that is interrupted between or in any of them, and starts again, has the same invoice
// and the same balance.
func TestInterruptedInvoice(t *testing.T) {
	b := book(t, requirementBook)
	account := teamA()
	account.Credits = []Credit{credit(t, "c1", "1000")}
	var sessions []Session
	for i := range 20 {
		sessions = append(sessions, held(t, fmt.Sprintf("s%02d", i), "4", 1000*i))
	}
	late := held(t, "late", "1", 3600)
	late.Start, late.End = epoch.AddDate(0, 0, -2), epoch.AddDate(0, 0, -1)
	late.Invoice = InvoiceID(account, november)
	sessions = append(sessions, late)
	want := invoice(t, b, account, november, sessions)
	wantBalance := amount(t, "1000").Minus(want.Total)
	check := func(what string, final []Invoice) {
		t.Helper()
		if diff := cmp.Diff(want, invoice(t, b, account, november, sessions)); diff != "" {
			t.Errorf("%s (-want,+got):\n%s", what, diff)
		}
		charges, err := Rate(b, sessions)
		if err != nil {
			t.Fatal(err)
		}
		got, err := account.Balance(final, charges)
		if err != nil || !got.Equal(wantBalance) {
			t.Errorf("%s: balance %s, %v; want %s", what, got, err, wantBalance)
		}
	}
	for i := range sessions {
		check(fmt.Sprintf("%d sessions written", i), nil)
		sessions[i].Invoice = want.ID
	}
	check("all sessions written", nil)
	check("final", []Invoice{want})
	check("final, listed twice", []Invoice{want, want})
	sessions = nil // their retention has ended
	if got, err := account.Balance([]Invoice{want}, nil); err != nil || !got.Equal(wantBalance) {
		t.Errorf("without sessions: balance %s, %v; want %s", got, err, wantBalance)
	}
}

// TestInvoiceIDs: unlike the requirement's ID, which has the time in seconds, the IDs of different
// invoices differ.
func TestInvoiceIDs(t *testing.T) {
	seen := map[string]string{}
	for i := range 100 {
		for _, p := range []string{"2026-11", "2026-11-01", "2026-11-01/2026-11-15", "2026-11-01T06:00:00Z/2026-11-15", "2026-10"} {
			period, err := ParsePeriod(p)
			if err != nil {
				t.Fatal(err)
			}
			what := fmt.Sprintf("account %d, %s", i, p)
			id := InvoiceID(Account{Tenant: "same-name", UID: fmt.Sprintf("uid-%d", i)}, period)
			if other, twice := seen[id]; twice {
				t.Errorf("%s has the ID of %s: %s", what, other, id)
			}
			seen[id] = what
		}
	}
}

// TestInvoiceMismatch: an invoice that does not add up is refused.
func TestInvoiceMismatch(t *testing.T) {
	cases := map[string]struct {
		change  func(*Invoice)
		wantErr string
	}{
		"another total":          {change: func(v *Invoice) { v.Total = amount(t, "7.99") }, wantErr: "total: 7.99, but the lines add up to 8.00"},
		"a line less":            {change: func(v *Invoice) { v.Lines = nil }, wantErr: "add up to 0.00"},
		"a negative discount":    {change: func(v *Invoice) { v.Lines[0].Discount = amount(t, "-1") }, wantErr: "line_items[0].hours, unit_price, discount"},
		"more estimated than is": {change: func(v *Invoice) { v.Lines[0].Estimated = 2 }, wantErr: "estimated: 2 of 1"},
		"a price that is none":   {change: func(v *Invoice) { v.Lines[0].NoPrice = true }, wantErr: "no_price: there is a price"},
		"a currency of two":      {change: func(v *Invoice) { v.Currency = "US" }, wantErr: "currency"},
		"no tenant":              {change: func(v *Invoice) { v.Tenant = "" }, wantErr: "tenant: is missing"},
		"a line of nothing":      {change: func(v *Invoice) { v.Lines[0].Resource = "" }, wantErr: "line_items[0].resource: is missing"},
		"an empty period":        {change: func(v *Invoice) { v.Period.End = v.Period.Start }, wantErr: "period: the end"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			v := invoice(t, book(t, requirementBook), teamA(), november, []Session{held(t, "s", "8", 1800)})
			v.Lines = slices.Clone(v.Lines)
			tc.change(&v)
			if err := v.Validate(); err == nil || !strings.Contains(err.Error(), tc.wantErr) {
				t.Errorf("error %v, want %q in it", err, tc.wantErr)
			}
		})
	}
}
