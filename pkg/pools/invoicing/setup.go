// SPDX-License-Identifier: Apache-2.0

package invoicing

import (
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

const (
	// pause is the time in which changes of one tenant are batched.
	pause = time.Second
	// workers is the number of tenants billed at once.
	workers = 4
)

// Options are the settings of billing.
type Options struct {
	// Grace is the time after a month at which its invoices are closed.
	Grace time.Duration
	// Keep is how long records are kept after their final invoice was exported.
	Keep time.Duration
	// BatchAfter is the time after their end at which sessions go into batches, in place of their
	// records; 0: never.
	BatchAfter time.Duration
	// StorageLimit is the bytes of etcd from which on a condition reports that the records and batches
	// of all tenants take too much; 0: no limit.
	StorageLimit int64
	// ExportDir is the folder of the files of final invoices and their sessions; empty: none are
	// written.
	ExportDir string
	// ExportCommand is run on each of these files, whose name replaces {}; empty: none is run.
	ExportCommand []string
	// Clock is the time; nil means the real one.
	Clock clock.PassiveClock
}

// Setup registers the invoicing controller with the manager.
func Setup(mgr manager.Manager, opts Options) error {
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	m, err := newMetrics(ctrlmetrics.Registry)
	if err != nil {
		return err
	}
	r := &reconciler{
		client: mgr.GetClient(), reader: mgr.GetAPIReader(), clock: opts.Clock, metrics: m, grace: opts.Grace, keep: opts.Keep, batchAfter: opts.BatchAfter,
		events: mgr.GetEventRecorderFor(names.FieldOwner), storage: newStorage(opts.StorageLimit), tallies: newTallies(),
	}
	m.limit.WithLabelValues().Set(float64(opts.StorageLimit))
	if opts.ExportDir != "" {
		r.exporter = &exporter{
			client: mgr.GetClient(), reader: mgr.GetAPIReader(), clock: clock.RealClock{}, now: opts.Clock, dir: opts.ExportDir, command: opts.ExportCommand,
		}
		if err := mgr.Add(r.exporter); err != nil {
			return fmt.Errorf("add the export of invoices: %w", err)
		}
	}
	ctx := context.Background() // it bounds nothing: the informers are the manager's
	for _, object := range []client.Object{&v1alpha1.UsageRecord{}, &v1alpha1.UsageBatch{}, &v1alpha1.Invoice{}} {
		if err := mgr.GetFieldIndexer().IndexField(ctx, object, fieldTenant, tenantOf); err != nil {
			return fmt.Errorf("index %s of %T: %w", fieldTenant, object, err)
		}
	}
	skip := true // tests have several managers in one process
	err = builder.TypedControllerManagedBy[string](mgr).
		Named("invoicing").
		Watches(&v1alpha1.TenantAccount{}, r.tallies.events(), builder.WithPredicates(specOrBook)).
		Watches(&v1alpha1.UsageRecord{}, r.tallies.events()).
		Watches(&v1alpha1.UsageBatch{}, r.tallies.events()).
		Watches(&v1alpha1.Invoice{}, r.tallies.events()).
		Watches(&v1alpha1.PriceBook{}, handler.TypedEnqueueRequestsFromMapFunc(r.all)).
		WithOptions(controller.TypedOptions[string]{MaxConcurrentReconciles: workers, SkipNameValidation: &skip}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("make the controller of invoicing: %w", err)
	}
	return nil
}

// tenantOf returns the tenant that an object is about.
func tenantOf(o client.Object) []string {
	switch o := o.(type) {
	case *v1alpha1.UsageRecord:
		return []string{o.Spec.Tenant}
	case *v1alpha1.UsageBatch:
		return []string{o.Spec.Tenant}
	case *v1alpha1.Invoice:
		return []string{o.Spec.Tenant}
	case *v1alpha1.TenantAccount:
		return []string{o.Name}
	}
	return nil
}

// specOrBook passes events that are more than a status write of this package.
var specOrBook = predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{})

// all returns the tenants with an account, each of which may use the changed price book.
func (r *reconciler) all(ctx context.Context, _ client.Object) []string {
	var accounts v1alpha1.TenantAccountList
	if err := r.client.List(ctx, &accounts); err != nil {
		return nil // the cache is stopping, and this process with it
	}
	out := make([]string, 0, len(accounts.Items))
	for i := range accounts.Items {
		out = append(out, accounts.Items[i].Name)
	}
	return out
}
