// SPDX-License-Identifier: Apache-2.0

package billing

import (
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"time"
)

// Mode selects the hours that a discount applies to.
type Mode string

// Scope selects the hours that are compared with the thresholds of discounts.
type Scope string

// The modes and scopes. The requirement has AllUnits and PerSession.
const (
	AllUnits   Mode  = "AllUnits"      // the highest threshold reached discounts all hours
	Marginal   Mode  = "Marginal"      // each threshold discounts the hours above it
	PerSession Scope = "Session"       // the hours of one session
	PerPeriod  Scope = "BillingPeriod" // the hours that a tenant has at one price in one bill
)

// The bounds of a price book.
const (
	maxPrices    = 1024
	maxPrice     = 1_000_000
	maxDiscounts = 64
	maxMinPeriod = 30 * 24 * 3600
)

// Book is a price book.
type Book struct {
	// Currency is three capital letters; all amounts are hundredths of it.
	Currency string  `json:"currency"`
	Prices   []Price `json:"prices"`
	// MinPeriodSeconds is the shortest time that a session is billed for.
	MinPeriodSeconds int64 `json:"minPeriodSeconds"`
	// Discounts ascend by threshold.
	Discounts     []Discount `json:"discounts,omitempty"`
	Mode          Mode       `json:"mode"`
	DiscountScope Scope      `json:"discountScope"`
	// Parts maps a part of a device to the device, such as a slice to its GPU. A part has the device's
	// price while it has none of its own.
	Parts map[string]string `json:"-"`
}

// Price is the price of one device of a resource per hour, for sessions that end at ValidFrom or later
// and before the next price of the same resource and model.
type Price struct {
	Resource string `json:"resource"` // such as nvidia.com/gpu
	// Model is a GPU model. A price without one applies to all models that have none of their own.
	Model string `json:"model,omitempty"`
	// ValidFrom is zero for a price that was always valid.
	ValidFrom time.Time `json:"validFrom,omitzero"`
	PerHour   Decimal   `json:"pricePerHour"`
}

// Discount is a tier: from ThresholdHours device hours on, the price is multiplied.
type Discount struct {
	ThresholdHours Decimal `json:"thresholdHours"`
	Multiplier     Decimal `json:"multiplier"`
}

// Equal reports whether two books have the same prices, discounts and terms, entry by entry.
func (b Book) Equal(o Book) bool {
	prices := func(p, q Price) bool {
		return p.Resource == q.Resource && p.Model == q.Model && p.ValidFrom.Equal(q.ValidFrom) && p.PerHour.equal(q.PerHour)
	}
	discounts := func(p, q Discount) bool {
		return p.ThresholdHours.equal(q.ThresholdHours) && p.Multiplier.equal(q.Multiplier)
	}
	return b.Currency == o.Currency && b.MinPeriodSeconds == o.MinPeriodSeconds && b.Mode == o.Mode && b.DiscountScope == o.DiscountScope &&
		maps.Equal(b.Parts, o.Parts) && slices.EqualFunc(b.Prices, o.Prices, prices) && slices.EqualFunc(b.Discounts, o.Discounts, discounts)
}

// Validate returns an error that names the field if the price book cannot be used for bills.
func (b Book) Validate() error {
	for _, check := range []func(Book) error{Book.checkTerms, Book.checkPrices, Book.checkDiscounts} {
		if err := check(b); err != nil {
			return fmt.Errorf("price book: %w", err)
		}
	}
	return nil
}

func (b Book) checkTerms() error {
	if err := checkCurrency(b.Currency); err != nil {
		return err
	}
	switch {
	case b.MinPeriodSeconds < 0 || b.MinPeriodSeconds > maxMinPeriod:
		return fmt.Errorf("minPeriodSeconds: %d, want 0 to %d", b.MinPeriodSeconds, maxMinPeriod)
	case b.Mode != AllUnits && b.Mode != Marginal:
		return fmt.Errorf("mode: want %s or %s", AllUnits, Marginal)
	case b.DiscountScope != PerSession && b.DiscountScope != PerPeriod:
		return fmt.Errorf("discountScope: want %s or %s", PerSession, PerPeriod)
	}
	return nil
}

func checkCurrency(s string) error {
	if len(s) != 3 || strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
		return fmt.Errorf("currency: %.8q, want three capital letters", s)
	}
	return nil
}

func (b Book) checkPrices() error {
	if len(b.Prices) > maxPrices {
		return fmt.Errorf("prices: %d, want at most %d", len(b.Prices), maxPrices)
	}
	type key struct {
		resource, model string
		validFrom       time.Time
	}
	seen := map[key]bool{}
	for i, p := range b.Prices {
		err := checkName("resource", p.Resource)
		switch k := (key{p.Resource, p.Model, p.ValidFrom.UTC()}); {
		case err != nil:
		case p.Model != "" && checkName("model", p.Model) != nil:
			err = checkName("model", p.Model)
		case p.PerHour.Sign() < 0, p.PerHour.Cmp(whole(maxPrice)) > 0:
			err = fmt.Errorf("pricePerHour: %s, want 0 to %d", p.PerHour, maxPrice)
		case seen[k]:
			err = errors.New("the resource and model have a price with this validFrom already")
		default:
			seen[k] = true
		}
		if err != nil {
			return fmt.Errorf("prices[%d]: %w", i, err)
		}
	}
	return nil
}

func (b Book) checkDiscounts() error {
	if len(b.Discounts) > maxDiscounts {
		return fmt.Errorf("discounts: %d, want at most %d", len(b.Discounts), maxDiscounts)
	}
	var last Decimal
	for i, d := range b.Discounts {
		if d.ThresholdHours.Cmp(last) <= 0 {
			return fmt.Errorf("discounts[%d].thresholdHours: %s, want more than %s", i, d.ThresholdHours, last)
		}
		if d.Multiplier.Sign() < 0 || d.Multiplier.Cmp(whole(1)) > 0 {
			return fmt.Errorf("discounts[%d].multiplier: %s, want 0 to 1", i, d.Multiplier)
		}
		last = d.ThresholdHours
	}
	return nil
}

// priceOf returns the index of the price that is valid for a resource and model at a time; -1 if there
// is none. A price of the model goes before one of all models, and of two the later one.
func (b Book) priceOf(resource, model string, at time.Time) int {
	found := b.ownPriceOf(resource, model, at)
	if device := b.Parts[resource]; found < 0 && device != "" && !b.hasPrice(resource, at) {
		return b.ownPriceOf(device, model, at)
	}
	return found
}

func (b Book) ownPriceOf(resource, model string, at time.Time) int {
	found := -1
	for i, p := range b.Prices {
		if !p.holds(resource, at) || p.Model != "" && p.Model != model {
			continue
		}
		if found < 0 || p.goesBefore(b.Prices[found]) {
			found = i
		}
	}
	return found
}

// hasPrice reports whether any model of a resource has a price at a time.
func (b Book) hasPrice(resource string, at time.Time) bool {
	return slices.ContainsFunc(b.Prices, func(p Price) bool { return p.holds(resource, at) })
}

func (p Price) holds(resource string, at time.Time) bool {
	return p.Resource == resource && !p.ValidFrom.After(at)
}

// goesBefore reports whether p is used rather than o, another valid price of the same resource.
func (p Price) goesBefore(o Price) bool {
	if (p.Model != "") != (o.Model != "") {
		return p.Model != ""
	}
	return p.ValidFrom.After(o.ValidFrom)
}

// multiplier returns the multiplier of the highest threshold that hours reach.
func (b Book) multiplier(hours *big.Rat) *big.Rat {
	m := big.NewRat(1, 1)
	for _, d := range b.Discounts {
		if hours.Cmp(d.ThresholdHours.Rat()) < 0 {
			break
		}
		m = d.Multiplier.Rat()
	}
	return m
}

// full returns the number of hours at the full price that cost as much as the discounted hours.
func (b Book) full(hours *big.Rat) *big.Rat {
	if b.Mode == AllUnits {
		return new(big.Rat).Mul(hours, b.multiplier(hours))
	}
	sum, from, at := new(big.Rat), new(big.Rat), big.NewRat(1, 1)
	tier := func(to *big.Rat) {
		width := new(big.Rat).Sub(to, from)
		sum.Add(sum, width.Mul(width, at))
	}
	for _, d := range b.Discounts {
		threshold := d.ThresholdHours.Rat()
		if hours.Cmp(threshold) <= 0 {
			break
		}
		tier(threshold)
		from, at = threshold, d.Multiplier.Rat()
	}
	tier(hours)
	return sum
}
