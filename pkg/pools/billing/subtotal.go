// SPDX-License-Identifier: Apache-2.0

package billing

import "math/big"

// Subtotal adds up charges of one line whose sessions are on the same invoice, so that a bill of many
// sessions need not rate each of them again. Discounts of the scope PerPeriod need all sessions: they
// have no Subtotal.
type Subtotal struct {
	// Invoice is the mark of the sessions: the page of their invoice, or empty.
	Invoice string
	// Ended is the month in which they ended.
	Ended Period
	// Line has no hours: they are rounded once, on the invoice.
	Line Line
	// Hours is the device hours billed, exactly; nil is 0.
	Hours *big.Rat
}

// SubtotalOf returns a subtotal without sessions, for the line and invoice of a charge and for a month.
func SubtotalOf(c *Charge, ended Period) *Subtotal {
	return &Subtotal{Invoice: c.Session.Invoice, Ended: ended, Line: emptyLine(c)}
}

// Add adds a charge of this line.
func (s *Subtotal) Add(c *Charge) {
	s.Hours = new(big.Rat).Add(s.hours(), c.Hours)
	s.Line.Discount = s.Line.Discount.Plus(c.Discount())
	s.Line.Subtotal = s.Line.Subtotal.Plus(c.Cost)
	s.Line.Sessions++
	if c.Session.Estimated {
		s.Line.Estimated++
	}
}

// Remove subtracts a charge that was added.
func (s *Subtotal) Remove(c *Charge) {
	s.Hours = new(big.Rat).Sub(s.hours(), c.Hours)
	s.Line.Discount = s.Line.Discount.Minus(c.Discount())
	s.Line.Subtotal = s.Line.Subtotal.Minus(c.Cost)
	s.Line.Sessions--
	if c.Session.Estimated {
		s.Line.Estimated--
	}
}

// plus adds another subtotal of the same line.
func (s *Subtotal) plus(o *Subtotal) {
	s.Hours = new(big.Rat).Add(s.hours(), o.hours())
	s.Line.Discount = s.Line.Discount.Plus(o.Line.Discount)
	s.Line.Subtotal = s.Line.Subtotal.Plus(o.Line.Subtotal)
	s.Line.Sessions += o.Line.Sessions
	s.Line.Estimated += o.Line.Estimated
}

func (s *Subtotal) hours() *big.Rat {
	if s.Hours == nil {
		return new(big.Rat)
	}
	return s.Hours
}
