// SPDX-License-Identifier: Apache-2.0

package invoicing

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/accounting"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// writeInvoices writes the invoices that are not final and the costs of their sessions, and closes those
// that are due.
//
// The order keeps a session on one invoice, even if another process does the same at once: an invoice is
// written open with all of its sessions, these are marked, and only then it is closed, and only if it
// was not written in between. A later process finds it closed, and puts the sessions that it missed on a
// later one.
//
// Of several pages all are written and all of their sessions marked before the first of them is closed,
// and page 1 is closed last: while another one is final already, sessions that become known can go to
// it.
func (r *reconciler) writeInvoices(ctx context.Context, books *accounting.Books, statement *accounting.Statement) error {
	closing := map[string]*v1alpha1.Invoice{}
	var due []*v1alpha1.Invoice // page 1 before the others
	for i := range statement.Invoices {
		spec := &statement.Invoices[i]
		written, err := r.writeOpen(ctx, books.Invoices, spec)
		if err != nil {
			return err
		}
		if spec.Finalized {
			closing[spec.InvoiceID] = written
			due = append(due, written)
		}
	}
	if err := r.writeSessions(ctx, books.Records, steady(books, statement.Sessions, closing), closing); err != nil {
		return err
	}
	if err := r.recost(ctx, books, statement.Sessions, closing); err != nil {
		return err
	}
	for _, invoice := range slices.Backward(due) {
		if err := r.close(ctx, books.Account, invoice); err != nil {
			return err
		}
	}
	return r.deleteStale(ctx, books.Invoices, statement.Stale)
}

// deleteStale deletes open invoices in the version that was read: one that was closed since is a bill,
// and stays.
func (r *reconciler) deleteStale(ctx context.Context, invoices []v1alpha1.Invoice, stale []string) error {
	for i := range invoices {
		v := &invoices[i]
		if !slices.Contains(stale, v.Name) {
			continue
		}
		err := r.client.Delete(ctx, v, client.Preconditions{UID: &v.UID, ResourceVersion: &v.ResourceVersion})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("delete invoice %s: %w", v.Name, err)
		}
	}
	return nil
}

// writeOpen writes the wanted spec to an invoice, still open.
func (r *reconciler) writeOpen(ctx context.Context, there []v1alpha1.Invoice, want *v1alpha1.InvoiceSpec) (*v1alpha1.Invoice, error) {
	spec := *want
	spec.Finalized = false
	i := slices.IndexFunc(there, func(v v1alpha1.Invoice) bool { return v.Name == want.InvoiceID })
	if i < 0 {
		made := &v1alpha1.Invoice{ObjectMeta: metav1.ObjectMeta{Name: want.InvoiceID}, Spec: spec}
		if err := r.client.Create(ctx, made, client.FieldOwner(names.FieldOwner)); err != nil {
			return nil, fmt.Errorf("make invoice %s: %w", want.InvoiceID, err)
		}
		return made, nil
	}
	invoice := there[i].DeepCopy()
	spec.GeneratedAt = invoice.Spec.GeneratedAt
	if equality.Semantic.DeepEqual(spec, invoice.Spec) {
		return invoice, nil
	}
	spec.GeneratedAt = want.GeneratedAt
	patch := client.MergeFromWithOptions(invoice.DeepCopy(), client.MergeFromWithOptimisticLock{})
	invoice.Spec = spec
	if err := r.client.Patch(ctx, invoice, patch, client.FieldOwner(names.FieldOwner)); err != nil {
		return nil, fmt.Errorf("write invoice %s: %w", invoice.Name, err)
	}
	return invoice, nil
}

// writeSessions writes cost and price of sessions, and the invoice of those that are late or whose
// invoice is to be closed. It writes only records that change, and updates them in records.
func (r *reconciler) writeSessions(ctx context.Context, records []v1alpha1.UsageRecord, sessions []accounting.Session, closing map[string]*v1alpha1.Invoice) error {
	byName := make(map[types.NamespacedName]*v1alpha1.UsageRecord, len(records))
	for i := range records {
		byName[client.ObjectKeyFromObject(&records[i])] = &records[i]
	}
	var before, changed []*v1alpha1.UsageRecord
	for i := range sessions {
		if sessions[i].Batched {
			continue
		}
		s, record := &sessions[i], byName[sessions[i].Record]
		want := record.Status
		accounting.Fix(&want, &s.Charge)
		if s.Late || closing[s.Invoice] != nil {
			want.Invoice = s.Invoice
		}
		if want == record.Status {
			continue
		}
		after := record.DeepCopy() // the record may be the cache's
		after.Status = want
		before, changed = append(before, record), append(changed, after)
	}
	return inParallel(ctx, len(changed), func(ctx context.Context, i int) error {
		// With the version that the price was decided from: a set price stays, and the cache may be
		// late.
		patch := client.MergeFromWithOptions(before[i], client.MergeFromWithOptimisticLock{})
		err := r.client.Status().Patch(ctx, changed[i], patch, client.FieldOwner(names.FieldOwner))
		if err != nil {
			return fmt.Errorf("write the cost of record %s/%s: %w", changed[i].Namespace, changed[i].Name, err)
		}
		*before[i] = *changed[i] // in its new version it may go into a batch
		return nil
	})
}

// close makes an invoice final, unless it has changed since it was read.
func (r *reconciler) close(ctx context.Context, account *v1alpha1.TenantAccount, invoice *v1alpha1.Invoice) error {
	patch := client.MergeFromWithOptions(invoice.DeepCopy(), client.MergeFromWithOptimisticLock{})
	invoice.Spec.Finalized = true
	if err := r.client.Patch(ctx, invoice, patch, client.FieldOwner(names.FieldOwner)); err != nil {
		return fmt.Errorf("close invoice %s: %w", invoice.Name, err)
	}
	r.events.Eventf(account, v1.EventTypeNormal, eventInvoiceFinal, "Invoice %s of %s %s is final", invoice.Name, invoice.Spec.Total, invoice.Spec.Currency)
	return nil
}

func without(list []string, one string) []string {
	return slices.DeleteFunc(list, func(s string) bool { return s == one })
}

// writers is the number of records of an account written at once: one after the other, a thousand take
// seconds of waiting.
const writers = 16

// inParallel calls do for each piece, some at once, until one fails; it returns the error of the first
// piece that failed.
func inParallel(ctx context.Context, pieces int, do func(ctx context.Context, i int) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	errs := make([]error, pieces)
	workqueue.ParallelizeUntil(ctx, writers, pieces, func(i int) {
		if errs[i] = do(ctx, i); errs[i] != nil {
			stop()
		}
	})
	for _, err := range errs {
		if err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
	}
	return ctx.Err()
}
