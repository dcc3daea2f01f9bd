// SPDX-License-Identifier: Apache-2.0

package billing

import (
	"errors"
	"fmt"
	"time"
)

// Account is a tenant's account. Credits are only ever appended; a mistake is corrected by a further
// credit, which may be negative.
type Account struct {
	Tenant string
	// UID makes the tenant's invoices differ from those of another account of this name.
	UID     string
	Credits []Credit
}

// Credit is money that a tenant has paid or was given.
type Credit struct {
	ID     string
	Amount Amount
	At     time.Time
}

// Validate returns an error that names the field if the account cannot be billed.
func (a Account) Validate() error {
	err := errors.Join(checkName("tenant", a.Tenant), checkName("uid", a.UID))
	seen := map[string]bool{}
	for i, c := range a.Credits {
		wrong := checkName("id", c.ID)
		switch {
		case wrong != nil:
		case seen[c.ID]:
			wrong = fmt.Errorf("id: %q is there twice", c.ID)
		case c.Amount.Sign() == 0:
			wrong = errors.New("amount: is 0")
		case c.At.IsZero():
			wrong = errors.New("at: is missing")
		}
		seen[c.ID] = true
		if wrong != nil {
			err = errors.Join(err, fmt.Errorf("credits[%d].%w", i, wrong))
		}
	}
	if err != nil {
		return fmt.Errorf("account %.64q: %w", a.Tenant, err)
	}
	return nil
}

// Balance is the credits minus the cost of the tenant's sessions: the total of each final invoice, and
// each charge of a session that is on none of them. It is computed from scratch each time, so a
// duplicate invoice or session is subtracted once.
func (a Account) Balance(final []Invoice, charges []Charge) (Amount, error) {
	var balance Amount
	for _, c := range a.Credits {
		balance = balance.Plus(c.Amount)
	}
	invoiced := map[string]Invoice{}
	for _, v := range final {
		if v.Tenant != a.Tenant {
			continue
		}
		known, twice := invoiced[v.ID]
		switch {
		case twice && !known.Total.Equal(v.Total):
			return Amount{}, fmt.Errorf("invoice %q: is there twice, with different totals", v.ID)
		case !twice:
			balance = balance.Minus(v.Total)
		}
		invoiced[v.ID] = v
	}
	counted := map[string]Amount{}
	for _, c := range charges {
		if _, covered := invoiced[c.Session.Invoice]; covered || c.Session.Tenant != a.Tenant {
			continue
		}
		known, twice := counted[c.Session.ID]
		switch {
		case twice && !known.Equal(c.Cost):
			return Amount{}, fmt.Errorf("session %q: is there twice, with different costs", c.Session.ID)
		case !twice:
			balance = balance.Minus(c.Cost)
		}
		counted[c.Session.ID] = c.Cost
	}
	return balance, nil
}
