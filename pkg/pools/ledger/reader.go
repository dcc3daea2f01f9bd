// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/accounting"
	"github.com/nvtopo/nvtopo/pkg/pools/billing"
)

// ErrNotFound is returned if the cluster has no such object.
var ErrNotFound = errors.New("not found")

// Reader reads pools, usage, prices and invoices from a cluster.
type Reader struct{ client dynamic.Interface }

// NewReader returns a Reader.
func NewReader(client dynamic.Interface) *Reader { return &Reader{client} }

// listAs reads the objects of a kind, in pages; with tenant, only that tenant's.
func listAs[T any](ctx context.Context, r *Reader, kind schema.GroupVersionResource, tenant string) ([]T, error) {
	page := int64(500)
	if kind == poolv1alpha1.UsageBatchGVR { // one has up to half a MiB
		page = 20
	}
	options := metav1.ListOptions{Limit: page}
	if tenant != "" {
		options.FieldSelector = fields.OneTermEqualSelector("spec.tenant", tenant).String()
	}
	var out []T
	for {
		list, err := r.client.Resource(kind).List(ctx, options)
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", kind.Resource, err)
		}
		for i := range list.Items {
			var one T
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, &one); err != nil {
				return nil, fmt.Errorf("read %s %s: %w", kind.Resource, list.Items[i].GetName(), err)
			}
			out = append(out, one)
		}
		if options.Continue = list.GetContinue(); options.Continue == "" {
			return out, nil
		}
	}
}

func getAs[T any](ctx context.Context, r *Reader, kind schema.GroupVersionResource, name string) (*T, error) {
	u, err := r.client.Resource(kind).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("the cluster has no %s %q: %w", kind.Resource, name, ErrNotFound)
	} else if err != nil {
		return nil, fmt.Errorf("get %s %s: %w", kind.Resource, name, err)
	}
	var one T
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &one); err != nil {
		return nil, fmt.Errorf("read %s %s: %w", kind.Resource, name, err)
	}
	return &one, nil
}

// Pools returns the pools, sorted by name.
func (r *Reader) Pools(ctx context.Context) ([]poolv1alpha1.ComputePool, error) {
	pools, err := listAs[poolv1alpha1.ComputePool](ctx, r, poolv1alpha1.ComputePoolGVR, "")
	slices.SortFunc(pools, func(a, b poolv1alpha1.ComputePool) int { return cmp.Compare(a.Name, b.Name) })
	return pools, err
}

// Records returns the usage records of a tenant, or of all if it is empty, including those that batches
// replace.
func (r *Reader) Records(ctx context.Context, tenant string) ([]poolv1alpha1.UsageRecord, error) {
	records, batches, err := r.usage(ctx, tenant)
	if err != nil {
		return nil, err
	}
	return append(accounting.InBatches(batches), accounting.Unbatched(records, batches)...), nil
}

// usage reads records and then batches: a record is deleted once it is in a batch.
func (r *Reader) usage(ctx context.Context, tenant string) ([]poolv1alpha1.UsageRecord, []poolv1alpha1.UsageBatch, error) {
	records, err := listAs[poolv1alpha1.UsageRecord](ctx, r, poolv1alpha1.UsageRecordGVR, tenant)
	if err != nil {
		return nil, nil, err
	}
	batches, err := listAs[poolv1alpha1.UsageBatch](ctx, r, poolv1alpha1.UsageBatchGVR, tenant)
	if apierrors.IsNotFound(err) { // the definitions are of an earlier release, whose controller makes none
		return records, nil, nil
	}
	return records, batches, err
}

// Invoices returns a tenant's invoices, or all if it is empty, the oldest first.
func (r *Reader) Invoices(ctx context.Context, tenant string) ([]poolv1alpha1.Invoice, error) {
	invoices, err := listAs[poolv1alpha1.Invoice](ctx, r, poolv1alpha1.InvoiceGVR, tenant)
	slices.SortFunc(invoices, func(a, b poolv1alpha1.Invoice) int {
		first, page := billing.PageOf(a.Name)
		other, after := billing.PageOf(b.Name)
		return cmp.Or(a.Spec.Period.Start.Compare(b.Spec.Period.Start.Time), cmp.Compare(first, other), cmp.Compare(page, after))
	})
	return invoices, err
}

// Books returns all known data of a tenant; ErrNotFound if it has no account.
func (r *Reader) Books(ctx context.Context, tenant string, now time.Time) (*accounting.Books, error) {
	account, err := getAs[poolv1alpha1.TenantAccount](ctx, r, poolv1alpha1.TenantAccountGVR, tenant)
	if err != nil {
		return nil, err
	}
	prices, err := getAs[poolv1alpha1.PriceBook](ctx, r, poolv1alpha1.PriceBookGVR, accounting.PriceBookOf(account))
	if err != nil && !errors.Is(err, ErrNotFound) {
		return nil, err
	}
	// The invoices first: records are marked before their invoice is final.
	invoices, err := r.Invoices(ctx, tenant)
	if err != nil {
		return nil, err
	}
	records, batches, err := r.usage(ctx, tenant)
	if err != nil {
		return nil, err
	}
	return &accounting.Books{Account: account, Prices: prices, Records: records, Batches: batches, Invoices: invoices, Now: now}, nil
}

// Summaries returns the bills of all tenants that have an account, by name, with the amounts that the
// controller wrote last. They have no lines: no record is read.
func (r *Reader) Summaries(ctx context.Context) ([]*accounting.Bill, error) {
	accounts, err := listAs[poolv1alpha1.TenantAccount](ctx, r, poolv1alpha1.TenantAccountGVR, "")
	if err != nil {
		return nil, err
	}
	books, err := listAs[poolv1alpha1.PriceBook](ctx, r, poolv1alpha1.PriceBookGVR, "")
	if err != nil {
		return nil, err
	}
	prices := map[string]*poolv1alpha1.PriceBook{}
	for i := range books {
		prices[books[i].Name] = &books[i]
	}
	slices.SortFunc(accounts, func(a, b poolv1alpha1.TenantAccount) int { return cmp.Compare(a.Name, b.Name) })
	out := make([]*accounting.Bill, len(accounts))
	for i := range accounts {
		out[i] = accounting.SummaryOf(&accounts[i], prices[accounting.PriceBookOf(&accounts[i])])
	}
	return out, nil
}

// Exported records that a final invoice was exported. Only the first time is kept.
func (r *Reader) Exported(ctx context.Context, invoice *poolv1alpha1.Invoice, now time.Time) error {
	if invoice.Status.ExportedAt != nil {
		return nil
	}
	patch := fmt.Appendf(nil, `{"metadata":{"resourceVersion":%q},"status":{"exportedAt":%q}}`, invoice.ResourceVersion, now.UTC().Format(time.RFC3339))
	_, err := r.client.Resource(poolv1alpha1.InvoiceGVR).Patch(ctx, invoice.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("write status.exportedAt of invoice %s: %w", invoice.Name, err)
	}
	return nil
}
