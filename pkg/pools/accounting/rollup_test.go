// SPDX-License-Identifier: Apache-2.0

package accounting

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
)

// credits returns n credits of 1.00, given one after the other from the 1st of October on, two a day.
func credits(n int) *v1alpha1.TenantAccount {
	a := account()
	for i := range n {
		at := day(10, 1, 0).Add(time.Duration(i) * 12 * time.Hour)
		a.Spec.Credits = append(a.Spec.Credits, v1alpha1.Credit{ID: fmt.Sprintf("c%d", i), Amount: "1.00", At: metav1.NewTime(at)})
	}
	return a
}

// TestRollUp: credits are combined where there are many, and only those of months whose invoices are all
// final.
func TestRollUp(t *testing.T) {
	zero := credits(600)
	for i := range zero.Spec.Credits[:600] {
		zero.Spec.Credits[i].At = metav1.NewTime(day(10, 2, 0))
		if i%2 == 1 {
			zero.Spec.Credits[i].Amount = "-1.00"
		}
	}
	later := credits(600)
	later.Spec.Credits[3].At = metav1.NewTime(day(12, 24, 0))
	again := credits(600)
	again.Spec.Credits[0].ID, again.Spec.Credits[0].Amount = v1alpha1.OpeningCredit, "-7.50"
	type want struct {
		Rolled  int
		Opening v1alpha1.Money
		At      time.Time
	}
	for name, tc := range map[string]struct {
		account  *v1alpha1.TenantAccount
		invoices []v1alpha1.Invoice
		records  []v1alpha1.UsageRecord
		noPrices bool
		now      time.Time
		want     *want // nil: none are
	}{
		"few credits":                 {account: credits(512), now: day(12, 3, 0)},
		"all months are over":         {account: credits(513), now: day(12, 3, 0), want: &want{122, "122.00", day(11, 30, 12)}}, // of October and November
		"the month goes on":           {account: credits(513), now: day(11, 20, 0), want: &want{62, "62.00", day(10, 31, 12)}},
		"it is over, and not closed":  {account: credits(513), now: day(12, 1, 23), want: &want{62, "62.00", day(10, 31, 12)}},
		"October's invoice is open":   {account: credits(513), invoices: []v1alpha1.Invoice{invoice(october, 10, "2.00", false)}, now: day(12, 3, 0)},
		"November's is open":          {account: credits(513), invoices: []v1alpha1.Invoice{invoice(november, 11, "2.00", false)}, now: day(12, 3, 0), want: &want{62, "62.00", day(10, 31, 12)}},
		"both are final":              {account: credits(513), invoices: []v1alpha1.Invoice{invoice(october, 10, "2.00", true), invoice(november, 11, "2.00", true)}, now: day(12, 3, 0), want: &want{122, "122.00", day(11, 30, 12)}},
		"a session is on none yet":    {account: credits(513), records: []v1alpha1.UsageRecord{lasting("s", "1", 3600)}, now: day(12, 3, 0), want: &want{62, "62.00", day(10, 31, 12)}},
		"nothing is invoiced":         {account: credits(513), noPrices: true, now: day(12, 3, 0)},
		"they come to nothing":        {account: zero, now: day(12, 3, 0), want: &want{599, "1.00", day(10, 2, 0)}},
		"one in front is of later":    {account: later, now: day(12, 3, 0), want: &want{3, "3.00", day(10, 2, 0)}},
		"the opening credit is there": {account: again, now: day(12, 3, 0), want: &want{122, "113.50", day(11, 30, 12)}},
	} {
		t.Run(name, func(t *testing.T) {
			books := Books{Account: tc.account, Prices: prices(), Records: tc.records, Invoices: tc.invoices, Now: tc.now, Grace: 24 * time.Hour}
			if tc.noPrices {
				books.Prices = nil
			}
			s, err := books.Compute()
			if err != nil {
				t.Fatal(err)
			}
			up, err := books.RollUp(s)
			if err != nil {
				t.Fatal(err)
			}
			if (up != nil) != (tc.want != nil) {
				t.Fatalf("got %+v, want %+v", up, tc.want)
			}
			if up == nil {
				return
			}
			first := &up.Credits[0]
			if diff := cmp.Diff(*tc.want, want{len(up.Rolled), first.Amount, first.At.UTC()}); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if first.ID != v1alpha1.OpeningCredit || len(up.Credits) != len(tc.account.Spec.Credits)-len(up.Rolled)+1 {
				t.Errorf("%d credits, the first of ID %s", len(up.Credits), first.ID)
			}
			if diff := cmp.Diff(tc.account.Spec.Credits[len(up.Rolled):], up.Credits[1:]); diff != "" {
				t.Errorf("the others have changed (-was +is):\n%s", diff)
			}
		})
	}
}

// TestRollUpBalance: balance, bill and invoices of an account are the same before and after credits are
// combined, repeatedly and for any account.
func TestRollUpBalance(t *testing.T) {
	rolled := 0
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 14)) //nolint:gosec // tests want the same numbers again
		a := account()
		for i := range 513 + rng.IntN(500) {
			cents := rng.Int64N(2_000_000_000) - 500_000_000
			if cents == 0 {
				cents = 1
			}
			sign := ""
			if cents < 0 {
				sign, cents = "-", -cents
			}
			a.Spec.Credits = append(a.Spec.Credits, v1alpha1.Credit{
				ID: fmt.Sprintf("c%d", i), Amount: v1alpha1.Money(fmt.Sprintf("%s%d.%02d", sign, cents/100, cents%100)),
				At: metav1.NewTime(day(6, 1, 0).Add(time.Duration(i*8+rng.IntN(16)) * time.Hour)),
			})
		}
		books := Books{Account: a, Prices: prices(), Grace: 24 * time.Hour, Now: day(8+rng.IntN(5), 1+rng.IntN(28), 0)}
		for i := range rng.IntN(4) {
			start := day(7, 1, 0).Add(time.Duration(rng.IntN(150*24)) * time.Hour)
			books.Records = append(books.Records, session(fmt.Sprintf("s%d", i), "1", start, start.Add(time.Hour)))
		}
		for month := range 3 {
			if p := Month(day(6+month, 1, 0)); books.Now.After(p.End.Add(books.Grace)) {
				id := fmt.Sprintf("inv-%s-%s-uid-a", p.Start.Format("20060102"), p.End.Format("20060102"))
				books.Invoices = append(books.Invoices, invoice(id, 6+month, "12.34", rng.IntN(4) > 0))
			}
		}
		for range 4 {
			before, err := books.Compute()
			if err != nil {
				t.Fatal(err)
			}
			up, err := books.RollUp(before)
			if err != nil {
				t.Fatal(err)
			}
			if up == nil {
				break
			}
			rolled++
			if have := len(books.Account.Spec.Credits); len(up.Credits) >= have {
				t.Fatalf("seed %d: %d credits are %d", seed, have, len(up.Credits))
			}
			books.Account = a.DeepCopy()
			books.Account.Spec.Credits = up.Credits
			after, err := books.Compute()
			if err != nil {
				t.Fatal(err)
			}
			if !before.Balance.Equal(after.Balance) || !before.Billed.Equal(after.Billed) || !before.Accrued.Equal(after.Accrued) {
				t.Fatalf("seed %d: balance %s, billed %s before, and %s, %s after", seed, before.Balance, before.Billed, after.Balance, after.Billed)
			}
			if diff := cmp.Diff(before.Invoices, after.Invoices); diff != "" {
				t.Fatalf("seed %d: the invoices have changed (-was +is):\n%s", seed, diff)
			}
			books.Now = books.Now.AddDate(0, 1, 0) // more is final then
			for i := range books.Invoices {
				books.Invoices[i].Spec.Finalized = true
			}
		}
	}
	if rolled < 50 {
		t.Errorf("credits were put together %d times, want 50 at least: the test shows nothing", rolled)
	}
}
