// SPDX-License-Identifier: Apache-2.0

package invoicing

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"k8s.io/client-go/util/workqueue"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/accounting"
)

// tallies are the books of all tenants, which the events of the cache keep up to date.
type tallies struct {
	mu sync.Mutex
	of map[string]*tally // guarded by mu; by tenant
}

// tally is the books of one tenant. Events alone miss older objects, so the cache is listed once. Events
// wait for the list: they may be newer.
type tally struct {
	*accounting.Tally

	mu     sync.Mutex
	listed bool // guarded by mu
}

func newTallies() *tallies { return &tallies{of: map[string]*tally{}} }

func (t *tallies) get(tenant string) *tally {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of[tenant] == nil {
		t.of[tenant] = &tally{Tally: accounting.NewTally()}
	}
	return t.of[tenant]
}

// set adds or updates a record, a batch or an invoice. The object must not be modified any more.
func (t *tallies) set(o client.Object) {
	switch o := o.(type) {
	case *v1alpha1.UsageRecord:
		t.tell(o.Spec.Tenant, func(own *accounting.Tally) { own.SetRecord(o) })
	case *v1alpha1.UsageBatch:
		t.tell(o.Spec.Tenant, func(own *accounting.Tally) { own.SetBatch(o) })
	case *v1alpha1.Invoice:
		t.tell(o.Spec.Tenant, func(own *accounting.Tally) { own.SetInvoice(o) })
	}
}

// remove removes a record, a batch or an invoice.
func (t *tallies) remove(o client.Object) {
	switch o := o.(type) {
	case *v1alpha1.UsageRecord:
		t.tell(o.Spec.Tenant, func(own *accounting.Tally) { own.DeleteRecord(o.Namespace, o.Name) })
	case *v1alpha1.UsageBatch:
		t.tell(o.Spec.Tenant, func(own *accounting.Tally) { own.DeleteBatch(o.Name) })
	case *v1alpha1.Invoice:
		t.tell(o.Spec.Tenant, func(own *accounting.Tally) { own.DeleteInvoice(o.Name) })
	}
}

// tell applies a change to a tenant's tally, under its lock.
func (t *tallies) tell(tenant string, something func(*accounting.Tally)) {
	own := t.get(tenant)
	own.mu.Lock()
	defer own.mu.Unlock()
	something(own.Tally)
}

type queue = workqueue.TypedRateLimitingInterface[string]

// events returns the handler that applies an object's event to the tally of its tenant, and then
// enqueues the tenant with a delay.
func (t *tallies) events() handler.TypedEventHandler[client.Object, string] {
	ask := func(o client.Object, q queue) {
		for _, tenant := range tenantOf(o) {
			q.AddAfter(tenant, pause)
		}
	}
	return handler.TypedFuncs[client.Object, string]{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) {
			t.set(e.Object)
			ask(e.Object, q)
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			if !slices.Equal(tenantOf(e.ObjectOld), tenantOf(e.ObjectNew)) { // deleted and recreated
				t.remove(e.ObjectOld)
				ask(e.ObjectOld, q)
			}
			t.set(e.ObjectNew)
			ask(e.ObjectNew, q)
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) {
			t.remove(e.Object)
			ask(e.Object, q)
		},
	}
}

// read returns the tally of a tenant, with all objects of the cache. An event that was on its way during
// the list may be older than the list: newer ones follow it.
func (t *tallies) read(ctx context.Context, cache client.Reader, tenant string) (*accounting.Tally, error) {
	own := t.get(tenant)
	own.mu.Lock()
	defer own.mu.Unlock()
	if own.listed {
		return own.Tally, nil
	}
	of := []client.ListOption{client.MatchingFields{fieldTenant: tenant}, client.UnsafeDisableDeepCopy}
	var invoices v1alpha1.InvoiceList
	if err := cache.List(ctx, &invoices, of...); err != nil {
		return nil, fmt.Errorf("list invoices of %s: %w", tenant, err)
	}
	var records v1alpha1.UsageRecordList
	if err := cache.List(ctx, &records, of...); err != nil {
		return nil, fmt.Errorf("list records of %s: %w", tenant, err)
	}
	var batches v1alpha1.UsageBatchList
	if err := cache.List(ctx, &batches, of...); err != nil {
		return nil, fmt.Errorf("list batches of %s: %w", tenant, err)
	}
	for i := range invoices.Items {
		own.SetInvoice(&invoices.Items[i])
	}
	for i := range records.Items {
		own.SetRecord(&records.Items[i])
	}
	for i := range batches.Items {
		own.SetBatch(&batches.Items[i])
	}
	own.listed = true
	return own.Tally, nil
}
