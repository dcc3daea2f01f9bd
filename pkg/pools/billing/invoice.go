// SPDX-License-Identifier: Apache-2.0

package billing

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Invoice is the amount that a tenant owes for a period, or a page of it. Computing it again from the
// same sessions yields the same invoice.
type Invoice struct {
	ID     string `json:"invoice_id"`
	Tenant string `json:"tenant"`
	Period Period `json:"period"`
	// Page is the number of the page, from 1 on; 0 for an invoice of one page. Pages is the number of
	// pages, and only set on the first one.
	Page        int       `json:"page,omitempty"`
	Pages       int       `json:"pages,omitempty"`
	Currency    string    `json:"currency"`
	Lines       []Line    `json:"line_items"`
	Total       Amount    `json:"total"`
	GeneratedAt time.Time `json:"generated_at"`
}

// Line is the sessions of an invoice that had one resource, model and price.
type Line struct {
	Resource string `json:"resource"`
	Model    string `json:"model,omitempty"`
	// Hours is the device hours billed, rounded; the subtotal is not computed from it.
	Hours     Decimal `json:"hours"`
	UnitPrice Decimal `json:"unit_price"`
	// Discount is the amount taken off; subtotal plus discount is the price without discounts.
	Discount Amount `json:"discount"`
	Subtotal Amount `json:"subtotal"` // the sum of the sessions' rounded costs
	Sessions int    `json:"sessions"`
	// Estimated is the number of sessions whose end was not observed.
	Estimated int `json:"estimated,omitempty"`
	// NoPrice: the price book had no price for it when the sessions ended, so nothing is charged.
	NoPrice bool `json:"no_price,omitempty"`
}

// InvoiceID returns the ID of an account's invoice for a period. It depends on both and on nothing else,
// so that no period is billed twice.
func InvoiceID(a Account, p Period) string { return "inv-" + p.compact() + "-" + a.UID }

// AccountOfInvoice returns the account, with that tenant's name, and the month of an invoice ID. ok is
// false for an ID that InvoiceID does not return.
func AccountOfInvoice(id, tenant string) (a Account, p Period, ok bool) {
	const dates = len("20261001-20261101-")
	rest, isInvoice := strings.CutPrefix(id, "inv-")
	if !isInvoice || len(rest) <= dates {
		return Account{}, Period{}, false
	}
	start, err := time.Parse("20060102", rest[:8])
	if err != nil || start.Day() != 1 {
		return Account{}, Period{}, false
	}
	a, p = Account{Tenant: tenant, UID: rest[dates:]}, Period{Start: start, End: start.AddDate(0, 1, 0)}
	return a, p, InvoiceID(a, p) == id
}

// OnInvoice returns the sessions that are on the account's invoice for a period: those marked with it,
// and those that ended in the period and are marked with none.
func OnInvoice(a Account, p Period, sessions []Session) []Session {
	id := InvoiceID(a, p)
	var on []Session
	for _, s := range sessions {
		inPeriod := s.Invoice == "" && p.Has(s.End)
		if s.Tenant == a.Tenant && !s.Open() && (s.Invoice == id || inPeriod) {
			on = append(on, s)
		}
	}
	return on
}

// NewInvoice computes an account's invoice from all existing sessions, with all lines on one page.
func NewInvoice(book Book, a Account, p Period, sessions []Session, now time.Time) (Invoice, error) {
	if err := billable(a, p); err != nil {
		return Invoice{}, err
	}
	charges, err := Rate(book, OnInvoice(a, p, sessions))
	if err != nil {
		return Invoice{}, err
	}
	return invoiceOf(book, a, p, charges, nil, now), nil
}

// billable returns an error for an account or a period that cannot have an invoice.
func billable(a Account, p Period) error {
	if err := a.Validate(); err != nil {
		return err
	}
	if err := p.Validate(); err != nil {
		return fmt.Errorf("period: %w", err)
	}
	return nil
}

// invoiceOf adds up charges and sums to an account's invoice for a period.
func invoiceOf(book Book, a Account, p Period, charges []Charge, sums []Subtotal, now time.Time) Invoice {
	v := Invoice{
		ID: InvoiceID(a, p), Tenant: a.Tenant, Period: p, Currency: book.Currency,
		Lines: linesOf(charges, sums), Total: Sum(charges), GeneratedAt: now,
	}
	for i := range sums {
		v.Total = v.Total.Plus(sums[i].Line.Subtotal)
	}
	return v
}

// lineKey identifies the line of a charge.
type lineKey struct {
	resource, model, price string
	none                   bool
}

func (c *Charge) line() lineKey {
	return lineKey{c.Session.Resource, c.Session.Model, c.UnitPrice.String(), c.NoPrice}
}

// linesOf adds up charges and sums by resource, model and price.
func linesOf(charges []Charge, sums []Subtotal) []Line {
	by := map[lineKey]*Subtotal{}
	of := func(k lineKey, empty Line) *Subtotal {
		if by[k] == nil {
			by[k] = &Subtotal{Line: empty}
		}
		return by[k]
	}
	for i := range charges {
		of(charges[i].line(), emptyLine(&charges[i])).Add(&charges[i])
	}
	for i := range sums {
		of(sums[i].Line.key(), sums[i].Line.empty()).plus(&sums[i])
	}
	lines := make([]Line, 0, len(by))
	for _, sum := range by {
		sum.Line.Hours = toHours(sum.hours())
		lines = append(lines, sum.Line)
	}
	slices.SortFunc(lines, compareLines)
	return lines
}

// emptyLine returns the line of a charge, without sessions.
func emptyLine(c *Charge) Line {
	return Line{Resource: c.Session.Resource, Model: c.Session.Model, UnitPrice: c.UnitPrice, NoPrice: c.NoPrice}
}

// empty returns the line without sessions.
func (l *Line) empty() Line {
	return Line{Resource: l.Resource, Model: l.Model, UnitPrice: l.UnitPrice, NoPrice: l.NoPrice}
}

func (l *Line) key() lineKey { return lineKey{l.Resource, l.Model, l.UnitPrice.String(), l.NoPrice} }

// compareLines orders the lines of an invoice.
func compareLines(a, b Line) int {
	return cmp.Or(cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Model, b.Model), a.UnitPrice.Cmp(b.UnitPrice), unpricedFirst(a, b))
}

func unpricedFirst(a, b Line) int {
	switch {
	case a.NoPrice == b.NoPrice:
		return 0
	case a.NoPrice:
		return -1
	}
	return 1
}

// Validate returns an error if the invoice does not add up or has an invalid name.
func (v Invoice) Validate() error {
	if err := v.check(); err != nil {
		return fmt.Errorf("invoice %.128q: %w", v.ID, err)
	}
	return nil
}

func (v Invoice) check() error {
	err := errors.Join(checkName("invoice_id", v.ID), checkName("tenant", v.Tenant), checkCurrency(v.Currency))
	if wrong := v.Period.Validate(); wrong != nil {
		err = errors.Join(err, fmt.Errorf("period: %w", wrong))
	}
	var total Amount
	for i, l := range v.Lines {
		if wrong := l.check(); wrong != nil {
			err = errors.Join(err, fmt.Errorf("line_items[%d].%w", i, wrong))
		}
		total = total.Plus(l.Subtotal)
	}
	if err == nil && !total.Equal(v.Total) {
		return fmt.Errorf("total: %s, but the lines add up to %s", v.Total, total)
	}
	return err
}

func (l Line) check() error {
	err := checkName("resource", l.Resource)
	if l.Model != "" {
		err = errors.Join(err, checkName("model", l.Model))
	}
	switch {
	case err != nil:
		return err
	case l.Hours.Sign() < 0, l.UnitPrice.Sign() < 0, l.Subtotal.Sign() < 0, l.Discount.Sign() < 0:
		return errors.New("hours, unit_price, discount or subtotal: is negative")
	case l.Estimated < 0, l.Estimated > l.Sessions:
		return fmt.Errorf("estimated: %d of %d sessions", l.Estimated, l.Sessions)
	case l.NoPrice && (l.UnitPrice.Sign() != 0 || l.Subtotal.Sign() != 0):
		return errors.New("no_price: there is a price")
	}
	return nil
}
