// SPDX-License-Identifier: Apache-2.0

package accounting

import (
	"cmp"
	"slices"
	"time"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/billing"
)

// Bill is what a tenant owes until now. Its JSON form is what `nvtopo pool bill` prints.
type Bill struct {
	Tenant   string         `json:"tenant"`
	Currency string         `json:"currency"`
	AsOf     time.Time      `json:"asOf"`
	Lines    []BillLine     `json:"lines"`
	Balance  billing.Amount `json:"balance"`
	Billed   billing.Amount `json:"billed"`
	Accrued  billing.Amount `json:"accrued"`
	Wrong    []string       `json:"wrong,omitempty"` // records that cannot be billed
	Held     []string       `json:"held,omitempty"`  // records that were restored without their status
	// NoPrices says why there is no price book to go by, and what to do.
	NoPrices string `json:"noPrices,omitempty"`
}

// BillLine is the sessions of one resource, model and price that are on no final invoice.
type BillLine struct {
	Resource  string          `json:"resource"`
	Model     string          `json:"model,omitempty"`
	UnitPrice billing.Decimal `json:"unitPrice"`
	Sessions  int             `json:"sessions"`
	Open      int             `json:"open"`
	Cost      billing.Amount  `json:"cost"`    // of those that have ended
	Accrued   billing.Amount  `json:"accrued"` // of those that go on
	NoPrice   bool            `json:"noPrice,omitempty"`
}

// BillOf computes what is owed by a tenant's books. It is an error if credits or a final invoice
// cannot be read.
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
		line := bill.line(&session.Charge)
		line.Sessions++
		line.Cost = line.Cost.Plus(session.Charge.Cost)
	}
	for i := range s.Open {
		line := bill.line(&s.Open[i])
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

// currency is that of the price book, or else of the last invoice; empty if there is neither. Where the
// book is in another one than the invoices, what was billed is in that of the invoices.
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

// line is that of a charge's resource, model and price.
func (b *Bill) line(c *billing.Charge) *BillLine {
	i := slices.IndexFunc(b.Lines, func(l BillLine) bool {
		return l.Resource == c.Session.Resource && l.Model == c.Session.Model && l.NoPrice == c.NoPrice && l.UnitPrice.Equal(c.UnitPrice)
	})
	if i < 0 {
		i = len(b.Lines)
		b.Lines = append(b.Lines, BillLine{Resource: c.Session.Resource, Model: c.Session.Model, UnitPrice: c.UnitPrice, NoPrice: c.NoPrice})
	}
	return &b.Lines[i]
}
