// SPDX-License-Identifier: Apache-2.0

package billing

import (
	"cmp"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"time"
)

// maxQuantity is more devices than any pod has.
const maxQuantity = 1_000_000

// Session is one pod's hold of devices, from its binding to its end.
type Session struct {
	ID       string `json:"id"` // the pod's UID
	Tenant   string `json:"tenant"`
	Resource string `json:"resource"`
	Model    string `json:"model,omitempty"`
	// Quantity is the number of devices; a slice is a part of one, such as 0.428.
	Quantity Decimal   `json:"quantity"`
	Start    time.Time `json:"start"`
	// End is zero while the session is open.
	End time.Time `json:"end,omitzero"`
	// Estimated: the end was not observed, it is the time of the last heartbeat.
	Estimated bool `json:"estimated,omitempty"`
	// Rest: the session continues another one of the same pod that ended too early, and has no minimum
	// of its own.
	Rest bool `json:"rest,omitempty"`
	// Invoice is the ID of the invoice that the session is on. Without it, the session is on the invoice
	// of the period in which it ends. A session that becomes known after that invoice is final is marked
	// with a later one.
	Invoice string `json:"invoice,omitempty"`
	// Fixed is the session's cost recorded after its end, independent of later price books; nil until it
	// is recorded.
	Fixed *Fixed `json:"fixed,omitempty"`
}

// Fixed is a session's price as it was valid when the session ended.
type Fixed struct {
	UnitPrice Decimal `json:"unitPrice"`
	// Seconds is the billed time; it includes the minimum.
	Seconds int64 `json:"seconds"`
	// Cost includes the discounts of the scope PerSession. Those of a period are known at its end.
	Cost Amount `json:"cost"`
}

// equal reports whether both are the same, or both nil.
func (f *Fixed) equal(o *Fixed) bool {
	if f == nil || o == nil {
		return f == o
	}
	return f.UnitPrice.Equal(o.UnitPrice) && f.Seconds == o.Seconds && f.Cost.Equal(o.Cost)
}

// check returns an error if no session of that duration can have this cost.
func (f *Fixed) check(s Session) error {
	lasted := s.End.Unix() - s.Start.Unix()
	switch {
	case s.Open():
		return errors.New("fixed: the session has not ended")
	case f.UnitPrice.Sign() < 0, f.UnitPrice.Cmp(whole(maxPrice)) > 0:
		return fmt.Errorf("fixed.unitPrice: %s, want 0 to %d", f.UnitPrice, maxPrice)
	case f.Seconds < lasted-1, f.Seconds > max(lasted+1, maxMinPeriod):
		return fmt.Errorf("fixed.seconds: %d of a session of %d", f.Seconds, lasted)
	}
	if gross := s.FixedGross(); f.Cost.Sign() < 0 || gross.Minus(f.Cost).Sign() < 0 {
		return fmt.Errorf("fixed.cost: %s, want 0 to %s", f.Cost, gross)
	}
	return nil
}

// FixedGross is the cost, without discounts, of a session whose price is fixed; 0 for others.
func (s Session) FixedGross() Amount {
	if s.Fixed == nil {
		return Amount{}
	}
	return toCents(new(big.Rat).Mul(s.hours(0), s.Fixed.UnitPrice.Rat()))
}

// Open reports whether the session has not ended.
func (s Session) Open() bool { return s.End.IsZero() }

// Equal reports whether both sessions are the same in all fields.
func (s Session) Equal(o Session) bool {
	sameTimes := s.Start.Equal(o.Start) && s.End.Equal(o.End)
	sameNames := s.ID == o.ID && s.Tenant == o.Tenant && s.Resource == o.Resource && s.Model == o.Model
	sameBill := s.Estimated == o.Estimated && s.Invoice == o.Invoice && s.Fixed.equal(o.Fixed)
	return sameTimes && sameNames && sameBill && s.Quantity.Equal(o.Quantity)
}

// Validate returns an error that names the field if the session cannot be billed.
func (s Session) Validate() error {
	if err := s.check(); err != nil {
		return fmt.Errorf("session %.64q: %w", s.ID, err)
	}
	return nil
}

func (s Session) check() error {
	err := errors.Join(checkName("id", s.ID), checkName("tenant", s.Tenant), checkName("resource", s.Resource))
	if s.Model != "" {
		err = errors.Join(err, checkName("model", s.Model))
	}
	if s.Invoice != "" {
		err = errors.Join(err, checkName("invoice", s.Invoice))
	}
	switch {
	case err != nil:
		return err
	case s.Quantity.Sign() <= 0, s.Quantity.Cmp(whole(maxQuantity)) > 0:
		return fmt.Errorf("quantity: %s, want more than 0 and at most %d", s.Quantity, maxQuantity)
	case s.Start.IsZero():
		return errors.New("start: is missing")
	case !s.Open() && s.End.Before(s.Start):
		return fmt.Errorf("end: %s is before the start", s.End.UTC().Format(time.RFC3339))
	case s.Fixed != nil:
		return s.Fixed.check(s)
	}
	return nil
}

// hours returns the device hours to bill: quantity times billed.
func (s Session) hours(minSeconds int64) *big.Rat {
	hours := s.billed(minSeconds)
	return hours.Mul(hours, s.Quantity.Rat()).Quo(hours, big.NewRat(3600, 1))
}

// billed returns the seconds that the session is billed for: the duration or the minimum, as of the
// session's end.
func (s Session) billed(minSeconds int64) *big.Rat {
	if s.Fixed != nil {
		return big.NewRat(s.Fixed.Seconds, 1)
	}
	// time.Duration ends at 292 years, so seconds and nanoseconds are subtracted apart.
	const nano = 1_000_000_000
	duration := big.NewRat(s.End.Unix()-s.Start.Unix(), 1)
	duration.Add(duration, big.NewRat(int64(s.End.Nanosecond()-s.Start.Nanosecond()), nano))
	if least := big.NewRat(minSeconds, 1); !s.Rest && duration.Cmp(least) < 0 {
		return least
	}
	return duration
}

// distinct returns each session once, by end and then by ID, so that no result depends on the order of
// the input. It fails if a session occurs twice with different fields.
func distinct(sessions []Session) ([]Session, error) {
	byID := make(map[string]Session, len(sessions))
	unique := make([]Session, 0, len(sessions))
	for _, s := range sessions {
		if err := s.Validate(); err != nil {
			return nil, err
		}
		if known, ok := byID[s.ID]; ok {
			if !known.Equal(s) {
				return nil, fmt.Errorf("session %q: is there twice, with different fields", s.ID)
			}
			continue
		}
		byID[s.ID] = s
		unique = append(unique, s)
	}
	slices.SortFunc(unique, func(a, b Session) int {
		return cmp.Or(a.End.Compare(b.End), cmp.Compare(a.ID, b.ID))
	})
	return unique, nil
}
