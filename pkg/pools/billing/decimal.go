// SPDX-License-Identifier: Apache-2.0

package billing

import (
	"errors"
	"fmt"
	"math/big"
	"strings"
)

// A number has at most maxDigits digits before the point, and a Decimal maxPlaces after it, which is
// enough for the cost of ten thousand sessions of the largest quantity, price and duration. No exponent
// is parsed: 1e999999999 would be a number of a gigabyte.
const (
	maxDigits   = 24
	maxPlaces   = 9
	centPlaces  = 2
	hoursPlaces = 6
)

// Decimal is an exact decimal number: a price, a multiplier, a quantity, a number of hours.
// It never changes; the zero value is 0. In JSON it is a string.
type Decimal struct{ rat *big.Rat }

// ParseDecimal parses a number such as 2, 0.428 or -1.5, with or without leading zeros.
func ParseDecimal(s string) (Decimal, error) {
	r, err := parseNumber(s, maxPlaces)
	return Decimal{r}, err
}

// whole returns n as a Decimal.
func whole(n int64) Decimal { return Decimal{big.NewRat(n, 1)} }

func (d Decimal) equal(o Decimal) bool { return d.Rat().Cmp(o.Rat()) == 0 }

// Rat returns a copy of the number.
func (d Decimal) Rat() *big.Rat {
	if d.rat == nil {
		return new(big.Rat)
	}
	return new(big.Rat).Set(d.rat)
}

// Sign is -1, 0 or 1.
func (d Decimal) Sign() int { return d.Rat().Sign() }

// Cmp is negative if d is less than e, 0 if they are equal.
func (d Decimal) Cmp(e Decimal) int { return d.Rat().Cmp(e.Rat()) }

// Equal reports whether both are the same number, however they were written.
func (d Decimal) Equal(e Decimal) bool { return d.Cmp(e) == 0 }

// String returns the number without needless zeros.
func (d Decimal) String() string {
	s := d.Rat().FloatString(maxPlaces)
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}

// MarshalText returns the number as String does.
func (d Decimal) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText parses a number as ParseDecimal does.
func (d *Decimal) UnmarshalText(text []byte) error {
	var err error
	*d, err = ParseDecimal(string(text))
	return err
}

// Amount is a whole number of cents. It never changes; the zero value is 0. In JSON it is a
// string with two places.
type Amount struct{ cents *big.Int }

// ParseAmount parses an amount such as 12, 12.5 or -12.50.
func ParseAmount(s string) (Amount, error) {
	r, err := parseNumber(s, centPlaces)
	if err != nil {
		return Amount{}, err
	}
	return Amount{roundHalfUp(r, centPlaces)}, nil
}

func (a Amount) int() *big.Int {
	if a.cents == nil {
		return new(big.Int)
	}
	return a.cents
}

// Plus returns a + b.
func (a Amount) Plus(b Amount) Amount { return Amount{new(big.Int).Add(a.int(), b.int())} }

// Minus returns a - b.
func (a Amount) Minus(b Amount) Amount { return Amount{new(big.Int).Sub(a.int(), b.int())} }

// Sign is -1, 0 or 1.
func (a Amount) Sign() int { return a.int().Sign() }

// Equal reports whether both are the same amount.
func (a Amount) Equal(b Amount) bool { return a.int().Cmp(b.int()) == 0 }

// String returns the amount with two decimal places.
func (a Amount) String() string {
	return new(big.Rat).SetFrac(a.int(), big.NewInt(100)).FloatString(centPlaces)
}

// MarshalText returns the amount as String does.
func (a Amount) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText parses an amount as ParseAmount does.
func (a *Amount) UnmarshalText(text []byte) error {
	var err error
	*a, err = ParseAmount(string(text))
	return err
}

// toCents rounds half up to cents.
func toCents(r *big.Rat) Amount { return Amount{roundHalfUp(r, centPlaces)} }

// toHours rounds hours for a line of an invoice. Nothing is computed from the result.
func toHours(r *big.Rat) Decimal {
	return Decimal{new(big.Rat).SetFrac(roundHalfUp(r, hoursPlaces), pow10(hoursPlaces))}
}

// roundHalfUp is floor(r·10^places + 1/2).
func roundHalfUp(r *big.Rat, places int) *big.Int {
	num := new(big.Int).Mul(r.Num(), pow10(places))
	num.Lsh(num, 1).Add(num, r.Denom())
	return num.Div(num, new(big.Int).Lsh(r.Denom(), 1)) // Div rounds down for a positive divisor
}

func pow10(n int) *big.Int { return new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil) }

// parseNumber parses a decimal number of at most maxDigits digits before the point and places after it.
func parseNumber(s string, places int) (*big.Rat, error) {
	if len(s) > len("-.")+maxDigits+maxPlaces {
		return nil, errors.New("a number of too many characters")
	}
	digits := strings.TrimPrefix(s, "-")
	before, behind, point := strings.Cut(digits, ".")
	switch {
	case !allDigits(before), point && !allDigits(behind):
		return nil, fmt.Errorf("%q: want a decimal number such as 12.5", s)
	case len(before) > maxDigits, len(behind) > places:
		return nil, fmt.Errorf("%q: want at most %d digits and %d behind the point", s, maxDigits, places)
	}
	r, ok := new(big.Rat).SetString(s)
	if !ok {
		return nil, fmt.Errorf("%q: want a decimal number such as 12.5", s)
	}
	return r, nil
}

func allDigits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}
