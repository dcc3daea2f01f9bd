// SPDX-License-Identifier: Apache-2.0

package invoicing

import (
	"context"
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/accounting"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// steady returns the sessions with the costs to write on their records. While discounts are counted over
// the month, a session's cost is written at its end and when its invoice is closed: in between it
// changes with each session, and the last written one would be kept if discounts were counted by session
// again.
func steady(books *accounting.Books, sessions []accounting.Session, closing map[string]*v1alpha1.Invoice) []accounting.Session {
	if books.Prices == nil || books.Prices.Spec.DiscountScope != v1alpha1.ScopeBillingPeriod {
		return sessions
	}
	out := slices.Clone(sessions)
	for i := range out {
		if fixed := out[i].Charge.Session.Fixed; fixed != nil && closing[out[i].Invoice] == nil {
			out[i].Charge.Cost = fixed.Cost
		}
	}
	return out
}

// recost puts sessions of closing invoices into new batches if the invoices bill them differently from
// their batches, and deletes the old batches.
func (r *reconciler) recost(ctx context.Context, books *accounting.Books, sessions []accounting.Session, closing map[string]*v1alpha1.Invoice) error {
	records, replaced := accounting.Recosted(books.Batches, sessions, func(invoice string) bool { return closing[invoice] != nil })
	made, err := accounting.Batches(records, books.Batches)
	if err != nil {
		return err
	}
	for i := range made {
		if err := r.client.Create(ctx, &made[i], client.FieldOwner(names.FieldOwner)); err != nil {
			return fmt.Errorf("make UsageBatch %s: %w", made[i].Name, err)
		}
	}
	return inParallel(ctx, len(replaced), func(ctx context.Context, i int) error { return r.letGo(ctx, &replaced[i]) })
}
