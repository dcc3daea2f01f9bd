// SPDX-License-Identifier: Apache-2.0

package invoicing

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/accounting"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
	"github.com/nvtopo/nvtopo/pkg/pools/refusal"
)

// Reasons of conditions and events.
const (
	reasonPriced      = "AllPriced"
	reasonNoPriceBook = "NoPriceBook"
	reasonNoPrice     = "NoPrice"
	reasonUnreadable  = "Unreadable"
	reasonCredit      = "Credit"
	reasonRestored    = "RestoredWithoutStatus"
	reasonSettled     = "Settled"
	reasonAboveLimit  = "AboveLimit"
	reasonBelowLimit  = "BelowLimit"
	reasonExported    = "AllExported"
	reasonNotExported = "NotExported"
	eventOverdrawn    = "Overdrawn" // also of the condition
	// eventInvoiceFinal is the reason of the event on an account whose invoice was closed.
	eventInvoiceFinal = "InvoiceFinal"
	// eventCreditsRolledUp is the reason of the event on an account whose credits were combined.
	eventCreditsRolledUp = "CreditsRolledUp"
)

const (
	// maxAge is the most that status.asOf may be behind while nothing else changes.
	maxAge = 10 * time.Minute
	// maxMessage is the length of the longest condition message that the API admits.
	maxMessage = 2048
)

// problem is the reason why an account has no statement, as a message for its condition.
type problem struct{ message string }

func (p *problem) Error() string { return p.message }

// unreadable writes into the account's condition why it has no statement. Its amounts are not changed.
func (r *reconciler) unreadable(ctx context.Context, account *v1alpha1.TenantAccount, err error) error {
	var p *problem
	if !errors.As(err, &p) {
		return err
	}
	status := account.Status.DeepCopy()
	r.set(status, account, v1alpha1.ConditionPriced, metav1.ConditionFalse, reasonUnreadable, p.message)
	return r.patchStatus(ctx, account, status)
}

// pricedOf returns the condition on whether all sessions have a price.
func pricedOf(books *accounting.Books, s *accounting.Statement) (is metav1.ConditionStatus, reason, message string) {
	unpriced := s.Unpriced()
	switch {
	case len(s.Wrong) > 0:
		return metav1.ConditionFalse, reasonUnreadable, errors.Join(s.Wrong...).Error()
	case s.NoPrices != "":
		if reason = reasonUnreadable; books.Prices == nil {
			reason = reasonNoPriceBook
		}
		return metav1.ConditionFalse, reason, s.NoPrices + ". Until then the balance has credits and what was priced before"
	case len(unpriced) > 0:
		return metav1.ConditionFalse, reasonNoPrice,
			"the price book has no price for " + strings.Join(unpriced, ", ") + ", which costs nothing until it has"
	}
	return metav1.ConditionTrue, reasonPriced, "all sessions have a price"
}

// heldMessage names the records that are not billed; it is empty if there are none.
func heldMessage(held []types.NamespacedName) string {
	if len(held) == 0 {
		return ""
	}
	const most = 5
	var named []string
	for _, record := range held[:min(most, len(held))] {
		named = append(named, record.String())
	}
	more := ""
	if n := len(held) - most; n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	return fmt.Sprintf("%d records were restored from a backup without their status, and are not billed: %s%s. %s",
		len(held), strings.Join(named, ", "), more, accounting.HowToSettle)
}

// writeStatus writes an account's amounts and conditions. stored is the bytes of etcd that its records
// and batches take. refused is the API server's refusal of its invoices; empty if it refused nothing.
func (r *reconciler) writeStatus(ctx context.Context, books *accounting.Books, s *accounting.Statement, stored int64, refused string) error {
	if err := r.countStored(ctx); err != nil {
		return err
	}
	account := books.Account
	status := account.Status.DeepCopy()
	status.Balance, status.Billed, status.Accrued = v1alpha1.Money(s.Balance.String()), v1alpha1.Money(s.Billed.String()), v1alpha1.Money(s.Accrued.String())
	priced, reason, message := pricedOf(books, s)
	if refused != "" {
		priced, reason, message = metav1.ConditionFalse, refusal.Reason, refused
	}
	r.set(status, account, v1alpha1.ConditionPriced, priced, reason, message)
	if message := heldMessage(s.Held); message != "" {
		r.set(status, account, v1alpha1.ConditionRecordsHeld, metav1.ConditionTrue, reasonRestored, message)
	} else if meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionRecordsHeld) != nil {
		r.set(status, account, v1alpha1.ConditionRecordsHeld, metav1.ConditionFalse, reasonSettled, "no record is held")
	}
	overdrawn := s.Balance.Sign() < 0
	if overdrawn {
		r.set(status, account, v1alpha1.ConditionOverdrawn, metav1.ConditionTrue, eventOverdrawn, "the sessions that have ended cost more than the credits")
	} else {
		r.set(status, account, v1alpha1.ConditionOverdrawn, metav1.ConditionFalse, reasonCredit, "the credits cover the sessions that have ended")
	}
	r.setStored(status, account, stored)
	r.setExported(status, account)
	r.metrics.set(account, s)
	was := meta.IsStatusConditionTrue(account.Status.Conditions, v1alpha1.ConditionOverdrawn)
	if err := r.patchStatus(ctx, account, status); err != nil {
		return err
	}
	if overdrawn && !was {
		r.events.Eventf(account, v1.EventTypeWarning, eventOverdrawn, "The balance is %s", s.Balance)
	}
	return nil
}

func (r *reconciler) set(status *v1alpha1.TenantAccountStatus, account *v1alpha1.TenantAccount, kind string, is metav1.ConditionStatus, reason, message string) {
	if len(message) > maxMessage {
		message = strings.ToValidUTF8(message[:maxMessage], "")
	}
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type: kind, Status: is, Reason: reason, Message: message, ObservedGeneration: account.Generation,
		LastTransitionTime: metav1.NewTime(r.clock.Now()),
	})
}

// patchStatus writes a status that has changed, or an unchanged one after maxAge.
func (r *reconciler) patchStatus(ctx context.Context, account *v1alpha1.TenantAccount, status *v1alpha1.TenantAccountStatus) error {
	now := metav1.NewTime(r.clock.Now())
	if asOf := account.Status.AsOf; equality.Semantic.DeepEqual(*status, account.Status) && asOf != nil && now.Sub(asOf.Time) < maxAge {
		return nil
	}
	status.AsOf = &now
	changed := account.DeepCopy()
	changed.Status = *status
	if err := r.client.Status().Patch(ctx, changed, client.MergeFrom(account), client.FieldOwner(names.FieldOwner)); err != nil {
		return fmt.Errorf("write the status of TenantAccount %s: %w", account.Name, err)
	}
	return nil
}
