// SPDX-License-Identifier: Apache-2.0

package accounting

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/billing"
)

// rollUpAbove is the most credits that an account keeps unchanged: half of the API's maximum.
const rollUpAbove = v1alpha1.MaxCredits / 2

// RollUp is an account's credits after the oldest have been combined in one.
type RollUp struct {
	// Credits are all credits of the account, the opening credit first. Their sum is the same as before.
	Credits []v1alpha1.Credit
	// Rolled are the credits that are now in the opening credit.
	Rolled []v1alpha1.Credit
}

// RollUp combines the first credits of an account, those of months whose invoices are all final and of
// earlier months. It returns nil while the account has few credits, while it has no price book to be
// invoiced by, and if there are no two such credits.
func (b *Books) RollUp(s *Statement) (*RollUp, error) {
	credits := b.Account.Spec.Credits
	if len(credits) <= rollUpAbove || s.NoPrices != "" {
		return nil, nil
	}
	opening, n, err := b.opening(b.settled(s))
	if err != nil || n < 2 {
		return nil, err
	}
	out := &RollUp{Rolled: credits[:n]}
	out.Credits = append(append(out.Credits, opening), credits[n:]...)
	return out, nil
}

// settled returns the start of the first month that has, or may yet have, an invoice that is not final.
func (b *Books) settled(s *Statement) time.Time {
	first := Month(b.Now.Add(-b.Grace)).Start
	for i := range s.Invoices {
		if start := s.Invoices[i].Period.Start.UTC(); start.Before(first) {
			first = start
		}
	}
	return first
}

// opening returns the sum of an account's first credits, all given before a time, and their number. A
// credit cannot be 0: where the sum is 0, the last of them stays unchanged.
func (b *Books) opening(before time.Time) (v1alpha1.Credit, int, error) {
	var (
		sum, last billing.Amount
		at        metav1.Time
	)
	credits := b.Account.Spec.Credits
	n := 0
	for ; n < len(credits) && credits[n].At.Time.Before(before); n++ {
		amount, err := billing.ParseAmount(string(credits[n].Amount))
		if err != nil {
			return v1alpha1.Credit{}, 0, fmt.Errorf("TenantAccount %s: credits[%d].amount: %w", b.Account.Name, n, err)
		}
		sum, last = sum.Plus(amount), amount
	}
	if n > 0 && sum.Sign() == 0 {
		sum, n = sum.Minus(last), n-1
	}
	for _, c := range credits[:n] {
		if c.At.After(at.Time) {
			at = c.At
		}
	}
	if at.Nanosecond() != 0 { // times are written in whole seconds
		at = metav1.NewTime(at.Truncate(time.Second).Add(time.Second))
	}
	return v1alpha1.Credit{
		ID: v1alpha1.OpeningCredit, Amount: v1alpha1.Money(sum.String()), At: at,
		Note: "the sum of the credits before, whose invoices are final",
	}, n, nil
}
