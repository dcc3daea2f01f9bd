// SPDX-License-Identifier: Apache-2.0

package accounting

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/billing"
)

// Bill is the amount that a tenant owes so far, with its lines. Its JSON form is the output of `nvtopo
// pool bill`.
type Bill struct {
	Tenant   string         `json:"tenant"`
	Currency string         `json:"currency"`
	AsOf     time.Time      `json:"asOf,omitzero"` // zero: the account was never billed
	Lines    []BillLine     `json:"lines"`
	Balance  billing.Amount `json:"balance"`
	Billed   billing.Amount `json:"billed"`
	Accrued  billing.Amount `json:"accrued"`
	Wrong    []string       `json:"wrong,omitempty"` // records that cannot be billed
	Held     []string       `json:"held,omitempty"`  // records that were restored without their status
	// NoPrices is the reason why no price book can be used, and the remedy.
	NoPrices string `json:"noPrices,omitempty"`
}

// BillLine is the sessions of one resource, model and price that are on no final invoice.
type BillLine struct {
	Resource  string          `json:"resource"`
	Model     string          `json:"model,omitempty"`
	UnitPrice billing.Decimal `json:"unitPrice"`
	Sessions  int             `json:"sessions"`
	Open      int             `json:"open"`
	Cost      billing.Amount  `json:"cost"`    // of ended sessions
	Accrued   billing.Amount  `json:"accrued"` // of open sessions
	NoPrice   bool            `json:"noPrice,omitempty"`
}

// BillOf computes the bill from a tenant's books. It fails if credits or a final invoice cannot be read.
func BillOf(books *Books) (*Bill, error) {
	s, err := books.Compute()
	if err != nil {
		return nil, err
	}
	bill := &Bill{
		Tenant: books.Account.Name, Currency: books.currency(), AsOf: books.Now.UTC().Truncate(time.Second),
		Lines: []BillLine{}, Balance: s.Balance, Billed: s.Billed, Accrued: s.Accrued, NoPrices: s.NoPrices,
	}
	for _, session := range s.Sessions {
		line := bill.lineOf(&session.Charge)
		line.Sessions++
		line.Cost = line.Cost.Plus(session.Charge.Cost)
	}
	for i := range s.Sums {
		sum := &s.Sums[i].Line
		line := bill.line(BillLine{Resource: sum.Resource, Model: sum.Model, UnitPrice: sum.UnitPrice, NoPrice: sum.NoPrice})
		line.Sessions += sum.Sessions
		line.Cost = line.Cost.Plus(sum.Subtotal)
	}
	for i := range s.Open {
		line := bill.lineOf(&s.Open[i])
		line.Open++
		line.Accrued = line.Accrued.Plus(s.Open[i].Cost)
	}
	for _, err := range s.Wrong {
		bill.Wrong = append(bill.Wrong, err.Error())
	}
	for _, record := range s.Held {
		bill.Held = append(bill.Held, record.String())
	}
	slices.SortFunc(bill.Lines, func(a, b BillLine) int {
		return cmp.Or(cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Model, b.Model), first(a.NoPrice, b.NoPrice), a.UnitPrice.Cmp(b.UnitPrice))
	})
	return bill, nil
}

// SummaryOf returns the bill that the controller wrote last on an account: amounts without lines. Wrong
// has the reasons why some records could not be billed. prices is nil if there is no price book of the
// account's name.
func SummaryOf(a *v1alpha1.TenantAccount, prices *v1alpha1.PriceBook) *Bill {
	bill := &Bill{Tenant: a.Name, Lines: []BillLine{}}
	if prices != nil {
		bill.Currency = string(prices.Spec.Currency)
	}
	if a.Status.AsOf != nil {
		bill.AsOf = a.Status.AsOf.UTC()
	}
	for _, f := range []struct {
		from v1alpha1.Money
		to   *billing.Amount
	}{{a.Status.Balance, &bill.Balance}, {a.Status.Billed, &bill.Billed}, {a.Status.Accrued, &bill.Accrued}} {
		if f.from == "" { // the controller has not billed the account yet
			continue
		}
		amount, err := billing.ParseAmount(string(f.from))
		if err != nil {
			bill.Wrong = append(bill.Wrong, err.Error())
		}
		*f.to = amount
	}
	for _, kind := range []string{v1alpha1.ConditionPriced, v1alpha1.ConditionRecordsHeld} {
		c := meta.FindStatusCondition(a.Status.Conditions, kind)
		if c != nil && (c.Status == metav1.ConditionTrue) == (kind == v1alpha1.ConditionRecordsHeld) {
			bill.Wrong = append(bill.Wrong, c.Message)
		}
	}
	return bill
}

// currency returns the currency of the price book, or else of the last invoice; empty if both are
// missing. If invoices have another currency than the book, it is the invoices', since the billed
// amounts are in it.
func (b *Books) currency() string {
	if b.Prices != nil {
		if v := b.otherCurrency(string(b.Prices.Spec.Currency)); v != nil {
			return string(v.Currency)
		}
		return string(b.Prices.Spec.Currency)
	}
	if len(b.Invoices) == 0 {
		return ""
	}
	last := slices.MaxFunc(b.Invoices, func(a, b v1alpha1.Invoice) int { return a.Spec.Period.Start.Compare(b.Spec.Period.Start.Time) })
	return string(last.Spec.Currency)
}

// lineOf returns the line of a charge's resource, model and price.
func (b *Bill) lineOf(c *billing.Charge) *BillLine {
	return b.line(BillLine{Resource: c.Session.Resource, Model: c.Session.Model, UnitPrice: c.UnitPrice, NoPrice: c.NoPrice})
}

// line returns the line of the same resource, model and price, and adds it if it is missing.
func (b *Bill) line(of BillLine) *BillLine {
	i := slices.IndexFunc(b.Lines, func(l BillLine) bool {
		return l.Resource == of.Resource && l.Model == of.Model && l.NoPrice == of.NoPrice && l.UnitPrice.Equal(of.UnitPrice)
	})
	if i < 0 {
		i = len(b.Lines)
		b.Lines = append(b.Lines, of)
	}
	return &b.Lines[i]
}
