// SPDX-License-Identifier: Apache-2.0

package invoicing

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/accounting"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
	"github.com/nvtopo/nvtopo/pkg/pools/refusal"
)

const (
	// fieldTenant selects records and invoices by tenant, in the cache and at the API server.
	fieldTenant = "spec.tenant"
	// soon is the interval of reconciling an account with open sessions, whose accrued cost changes, or
	// open invoices, and idle that of other accounts.
	soon, idle = time.Minute, 10 * time.Minute
	// again is the delay before a retry after a conflicting write.
	again = time.Second
)

// reconciler keeps the account, the invoices and the costs of one tenant. Its requests are tenants.
type reconciler struct {
	client  client.Client
	reader  client.Reader // not the cache: a final invoice must be complete
	clock   clock.PassiveClock
	events  record.EventRecorder
	metrics *metrics
	grace   time.Duration
	keep    time.Duration
	// batchAfter is the time after their end at which sessions go into batches; 0: never.
	batchAfter time.Duration
	storage    *storage
	tallies    *tallies
	exporter   *exporter // nil without an automatic export
}

// Reconcile computes the tenant's statement and writes the differences.
func (r *reconciler) Reconcile(ctx context.Context, tenant string) (reconcile.Result, error) {
	tally, err := r.tallies.read(ctx, r.client, tenant)
	if err != nil {
		return reconcile.Result{}, err
	}
	account, err := r.account(ctx, tenant, tally)
	if err != nil {
		return reconcile.Result{}, err
	}
	if account == nil {
		r.metrics.forget(tenant)
		r.storage.set(tenant, 0)
		return reconcile.Result{}, nil
	}
	after, err := r.keepBooks(ctx, account, tally)
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return reconcile.Result{RequeueAfter: again}, nil
	}
	return reconcile.Result{RequeueAfter: after}, err
}

// account returns the tenant's account. For a tenant that has used devices it is created if it is
// missing.
func (r *reconciler) account(ctx context.Context, tenant string, tally *accounting.Tally) (*v1alpha1.TenantAccount, error) {
	var account v1alpha1.TenantAccount
	err := r.client.Get(ctx, client.ObjectKey{Name: tenant}, &account)
	if err == nil {
		return &account, nil
	}
	if !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("get TenantAccount %s: %w", tenant, err)
	}
	if tally.Empty() {
		return nil, nil
	}
	account = v1alpha1.TenantAccount{ObjectMeta: metav1.ObjectMeta{Name: tenant}}
	if err := r.client.Create(ctx, &account, client.FieldOwner(names.FieldOwner)); err != nil {
		return nil, fmt.Errorf("make TenantAccount %s: %w", tenant, err)
	}
	return &account, nil
}

// keepBooks writes the results of an account's statement, and returns the time until the next
// reconciliation.
func (r *reconciler) keepBooks(ctx context.Context, account *v1alpha1.TenantAccount, tally *accounting.Tally) (time.Duration, error) {
	books, statement, shown, err := r.readBooks(ctx, account, tally)
	if err != nil {
		return idle, r.unreadable(ctx, account, err)
	}
	refused := ""
	if statement.NoPrices == "" {
		if err := r.writeBooks(ctx, books, statement, shown); err != nil {
			if refused = refusal.Forbidden(err, "what tenant "+account.Name+" owes"); refused == "" {
				return 0, err
			}
		}
	}
	if err := r.writeStatus(ctx, books, statement, tally.StoredBytes(), refused); err != nil {
		return 0, err
	}
	too, err := r.tidy(ctx, books, statement, tally)
	if err != nil {
		return 0, err
	}
	if refused = cmp.Or(refused, too); refused != "" {
		r.events.Event(account, v1.EventTypeWarning, refusal.EventRefused, refused)
		return refusal.Again, nil
	}
	if len(statement.Open) > 0 || len(statement.Invoices) > 0 {
		return soon, nil
	}
	return idle, nil
}

// readBooks makes the statement: from the cache, or from the API server if irreversible writes are due.
// shown is the work on batches; nil if there is none.
func (r *reconciler) readBooks(ctx context.Context, account *v1alpha1.TenantAccount, tally *accounting.Tally) (books *accounting.Books, statement *accounting.Statement, shown *batching, err error) {
	prices, err := priceBook(ctx, r.client, account)
	if err != nil {
		return nil, nil, nil, err
	}
	books, statement, err = tally.Statement(accounting.Books{Account: account, Prices: prices, Now: r.clock.Now(), Grace: r.grace})
	if err != nil {
		return nil, nil, nil, &problem{err.Error()}
	}
	if statement.NoPrices != "" {
		return books, statement, nil, nil // nothing is written
	}
	if shown, err = r.batching(ctx, books, tally); err != nil {
		return nil, nil, nil, err
	}
	// Recent writes may be missing from the cache.
	switch {
	case shown != nil:
		books, statement, err = r.computeLive(ctx, account, shown.readyAfter(r.batchAfter), tally)
	case statement.Settles():
		books, statement, err = r.computeLive(ctx, account, 0, tally)
	}
	return books, statement, shown, err
}

// writeBooks writes invoices and costs, and then does the work on batches.
func (r *reconciler) writeBooks(ctx context.Context, books *accounting.Books, statement *accounting.Statement, shown *batching) error {
	if err := r.writeInvoices(ctx, books, statement); err != nil || shown == nil {
		return err
	}
	return r.batch(ctx, books, shown)
}

// tidy deletes expired records, and combines old credits. refused is the API server's refusal; empty if
// it refused nothing.
func (r *reconciler) tidy(ctx context.Context, books *accounting.Books, statement *accounting.Statement, tally *accounting.Tally) (refused string, err error) {
	tenant := books.Account.Name
	if err := r.expire(ctx, tally, books.Now); err != nil {
		if refused = refusal.Forbidden(err, "the deletion of billed records of tenant "+tenant); refused == "" {
			return "", err
		}
	}
	if err := r.rollUp(ctx, books, statement); err != nil {
		// A definition that is older than the controller makes it invalid.
		why := refusal.Of(err, "one opening credit of tenant "+tenant)
		if why == "" {
			return "", err
		}
		refused = cmp.Or(refused, why)
	}
	return refused, nil
}

// priceBook returns the price book of an account; nil if there is none.
func priceBook(ctx context.Context, from client.Reader, account *v1alpha1.TenantAccount) (*v1alpha1.PriceBook, error) {
	name, prices := accounting.PriceBookOf(account), &v1alpha1.PriceBook{}
	if err := from.Get(ctx, client.ObjectKey{Name: name}, prices); apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("get PriceBook %s: %w", name, err)
	}
	return prices, nil
}

// compute makes the statement of an account from the API server's objects. An error without an
// *apierrors.StatusError is a problem for people to solve.
func (r *reconciler) compute(ctx context.Context, account *v1alpha1.TenantAccount, batchAfter time.Duration) (*accounting.Books, *accounting.Statement, error) {
	books, err := r.listRecords(ctx, account, batchAfter)
	if err != nil {
		return nil, nil, err
	}
	return r.withBatches(ctx, books)
}

// computeLive makes the statement from the API server's objects. Batches never change: they are taken
// from the tally if it has exactly the API server's.
func (r *reconciler) computeLive(ctx context.Context, account *v1alpha1.TenantAccount, batchAfter time.Duration, tally *accounting.Tally) (*accounting.Books, *accounting.Statement, error) {
	books, err := r.listRecords(ctx, account, batchAfter)
	if err != nil {
		return nil, nil, err
	}
	batches := metadata(v1alpha1.SchemeGroupVersion.WithKind("UsageBatchList"))
	if err := r.reader.List(ctx, batches, client.MatchingFields{fieldTenant: account.Name}); err != nil {
		return nil, nil, fmt.Errorf("list batches of %s: %w", account.Name, err)
	}
	uids := make(map[types.UID]bool, len(batches.Items))
	for i := range batches.Items {
		uids[batches.Items[i].UID] = true
	}
	live, statement, ok, err := tally.WithBatches(*books, uids)
	switch {
	case err != nil:
		return nil, nil, &problem{err.Error()}
	case !ok:
		return r.withBatches(ctx, books)
	}
	return live, statement, nil
}

// listRecords reads all objects of an account from the API server, except batches.
func (r *reconciler) listRecords(ctx context.Context, account *v1alpha1.TenantAccount, batchAfter time.Duration) (*accounting.Books, error) {
	prices, err := priceBook(ctx, r.reader, account)
	if err != nil {
		return nil, err
	}
	// The invoices first: records are marked before their invoice is final. In the other order, a record
	// that was marked in between would seem late.
	var invoices v1alpha1.InvoiceList
	if err := r.reader.List(ctx, &invoices, client.MatchingFields{fieldTenant: account.Name}); err != nil {
		return nil, fmt.Errorf("list invoices of %s: %w", account.Name, err)
	}
	var records v1alpha1.UsageRecordList
	if err := r.reader.List(ctx, &records, client.MatchingFields{fieldTenant: account.Name}); err != nil {
		return nil, fmt.Errorf("list records of %s: %w", account.Name, err)
	}
	return &accounting.Books{
		Account: account, Prices: prices, Records: records.Items, Invoices: invoices.Items,
		Now: r.clock.Now(), Grace: r.grace, BatchAfter: batchAfter,
	}, nil
}

// withBatches reads the batches of books, and makes their statement. Batches are read last: records are
// deleted once they are in one.
func (r *reconciler) withBatches(ctx context.Context, books *accounting.Books) (*accounting.Books, *accounting.Statement, error) {
	var batches v1alpha1.UsageBatchList
	if err := r.reader.List(ctx, &batches, client.MatchingFields{fieldTenant: books.Account.Name}); err != nil {
		return nil, nil, fmt.Errorf("list batches of %s: %w", books.Account.Name, err)
	}
	books.Batches = batches.Items
	statement, err := books.Compute()
	if err != nil {
		return nil, nil, &problem{err.Error()}
	}
	return books, statement, nil
}

// expire deletes expired records and batches.
func (r *reconciler) expire(ctx context.Context, tally *accounting.Tally, now time.Time) error {
	old, batches := tally.Expired(r.keep, now)
	if err := inParallel(ctx, len(old), func(ctx context.Context, i int) error { return r.delete(ctx, old[i]) }); err != nil {
		return err
	}
	return inParallel(ctx, len(batches), func(ctx context.Context, i int) error { return r.letGo(ctx, batches[i]) })
}

// delete deletes a record. A record whose pod still exists would be created again, and stays.
func (r *reconciler) delete(ctx context.Context, old *v1alpha1.UsageRecord) error {
	var pod v1.Pod
	// Not from the cache: a pod that it does not show may run, and would get a new record.
	namespace := accounting.NamespaceOf(old)
	err := r.reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: old.Spec.Pod}, &pod)
	switch {
	case err == nil && pod.UID == old.Spec.PodUID:
		return nil
	case client.IgnoreNotFound(err) != nil:
		return fmt.Errorf("get pod %s/%s: %w", namespace, old.Spec.Pod, err)
	}
	return r.letGo(ctx, old)
}

// letGo removes the billing finalizer and deletes a record or a batch, unless it has changed since it
// was read.
func (r *reconciler) letGo(ctx context.Context, old client.Object) error {
	gone, ok := old.DeepCopyObject().(client.Object)
	if !ok {
		return fmt.Errorf("copy %T: it is no object", old)
	}
	gone.SetFinalizers(without(gone.GetFinalizers(), names.FinalizerBilling))
	patch := client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{})
	if err := r.client.Patch(ctx, gone, patch, client.FieldOwner(names.FieldOwner)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("let %T %s go: %w", old, client.ObjectKeyFromObject(old), err)
	}
	uid := old.GetUID()
	if err := r.client.Delete(ctx, gone, client.Preconditions{UID: &uid}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete %T %s: %w", old, client.ObjectKeyFromObject(old), err)
	}
	return nil
}
