// SPDX-License-Identifier: Apache-2.0

package billing

import (
	"fmt"
	"math/big"
	"slices"
	"time"
)

// Charge is the cost of one session.
type Charge struct {
	Session   Session
	Hours     *big.Rat // device hours billed, exactly
	Seconds   int64    // billed seconds; without the fraction, which records never have
	UnitPrice Decimal
	Gross     Amount // without discounts
	Cost      Amount // rounded half up, per session
	// NoPrice: the book had no price for it when it ended, so it costs nothing.
	NoPrice bool
}

// Discount is the amount that the discounts took off.
func (c Charge) Discount() Amount { return c.Gross.Minus(c.Cost) }

// Rate returns the charge of each ended session of one bill, sorted by end and ID. The price is the one
// that was valid when a session ended: the Fixed one, or else the book's of that time. For discounts of
// the scope PerPeriod, sessions must be all sessions of the period; with Marginal, those that end first
// have the hours before the thresholds.
func Rate(book Book, sessions []Session) ([]Charge, error) {
	if err := book.Validate(); err != nil {
		return nil, err
	}
	ended, err := distinct(sessions)
	if err != nil {
		return nil, err
	}
	charges := make([]Charge, len(ended))
	total := hoursOf{}
	for i, s := range ended {
		if s.Open() {
			return nil, fmt.Errorf("session %q: has not ended", s.ID)
		}
		charges[i] = Charge{Session: s, Hours: s.hours(book.MinPeriodSeconds), Seconds: wholeSeconds(s.billed(book.MinPeriodSeconds))}
		total.add(book.groupOf(s), charges[i].Hours)
	}
	before := hoursOf{}
	for i := range charges {
		g := book.groupOf(charges[i].Session)
		charges[i].price(book, before.get(g), total.get(g))
		before.add(g, charges[i].Hours)
	}
	return charges, nil
}

func wholeSeconds(r *big.Rat) int64 { return new(big.Int).Quo(r.Num(), r.Denom()).Int64() }

// price computes the cost of the charge's hours. before is the hours that precede them in the bill,
// total all its hours.
func (c *Charge) price(book Book, before, total *big.Rat) {
	s := &c.Session
	if s.Fixed != nil {
		c.UnitPrice = s.Fixed.UnitPrice
	} else if i := book.priceOf(s.Resource, s.Model, s.End); i >= 0 {
		c.UnitPrice = book.Prices[i].PerHour
	} else {
		c.NoPrice = true
		return
	}
	c.Gross = toCents(new(big.Rat).Mul(c.Hours, c.UnitPrice.Rat()))
	if s.Fixed != nil && book.DiscountScope == PerSession {
		c.Cost = s.Fixed.Cost
		return
	}
	c.Cost = toCents(new(big.Rat).Mul(book.fullWithin(c.Hours, before, total), c.UnitPrice.Rat()))
}

// group identifies the sessions whose hours are added up for discounts of the scope PerPeriod: those of
// a resource, and of the model if it has prices of its own. A price change begins no new group.
type group struct {
	tenant, resource, model string
	priced                  bool
}

func (b Book) groupOf(s Session) group {
	if i := b.priceOf(s.Resource, s.Model, s.End); i >= 0 {
		return group{s.Tenant, s.Resource, b.Prices[i].Model, true}
	}
	return group{s.Tenant, s.Resource, s.Model, s.Fixed != nil}
}

// hoursOf is sums of hours by group.
type hoursOf map[group]*big.Rat

func (h hoursOf) get(g group) *big.Rat {
	if h[g] == nil {
		return new(big.Rat)
	}
	return h[g]
}

func (h hoursOf) add(g group, hours *big.Rat) {
	if h[g] == nil {
		h[g] = new(big.Rat)
	}
	h[g].Add(h[g], hours)
}

// fullWithin returns the number of hours at the full price that cost as much as a session's hours, after
// the hours before it, in a bill of total hours.
func (b Book) fullWithin(hours, before, total *big.Rat) *big.Rat {
	switch {
	case b.DiscountScope == PerSession:
		return b.full(hours)
	case b.Mode == AllUnits:
		return new(big.Rat).Mul(hours, b.multiplier(total))
	}
	after := b.full(new(big.Rat).Add(before, hours))
	return after.Sub(after, b.full(before))
}

// Accrued returns the charges of the open sessions as if they ended now, at the prices that are valid
// now. It is an estimate: with discounts of the scope PerPeriod, sessions that end later change it.
func Accrued(book Book, sessions []Session, now time.Time) ([]Charge, error) {
	asEnded := slices.Clone(sessions)
	open := map[string]bool{}
	for i, s := range asEnded {
		if !s.Open() {
			continue
		}
		open[s.ID] = true
		asEnded[i].End = now
		if now.Before(s.Start) { // another clock wrote the start
			asEnded[i].End = s.Start
		}
	}
	charges, err := Rate(book, asEnded)
	return slices.DeleteFunc(charges, func(c Charge) bool { return !open[c.Session.ID] }), err
}

// Sum returns the total cost of charges.
func Sum(charges []Charge) Amount {
	var sum Amount
	for _, c := range charges {
		sum = sum.Plus(c.Cost)
	}
	return sum
}
