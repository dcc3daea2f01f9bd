// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
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
)

// poolReader reads what a cluster has of pools.
type poolReader struct{ dyn dynamic.Interface }

// listAs reads the objects of a kind, in pages.
func listAs[T any](ctx context.Context, r *poolReader, kind schema.GroupVersionResource, tenant string) ([]T, error) {
	const page = 500
	options := metav1.ListOptions{Limit: page}
	if tenant != "" {
		options.FieldSelector = fields.OneTermEqualSelector("spec.tenant", tenant).String()
	}
	var out []T
	for {
		list, err := r.dyn.Resource(kind).List(ctx, options)
		if err != nil {
			return nil, inputf("list %s: %w", kind.Resource, err)
		}
		for i := range list.Items {
			var one T
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, &one); err != nil {
				return nil, inputf("read %s %s: %w", kind.Resource, list.Items[i].GetName(), err)
			}
			out = append(out, one)
		}
		if options.Continue = list.GetContinue(); options.Continue == "" {
			return out, nil
		}
	}
}

func getAs[T any](ctx context.Context, r *poolReader, kind schema.GroupVersionResource, name string) (*T, error) {
	u, err := r.dyn.Resource(kind).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, noAnswerf("the cluster has no %s %q", kind.Resource, name)
	} else if err != nil {
		return nil, inputf("get %s %s: %w", kind.Resource, name, err)
	}
	var one T
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &one); err != nil {
		return nil, inputf("read %s %s: %w", kind.Resource, name, err)
	}
	return &one, nil
}

func (r *poolReader) pools(ctx context.Context) ([]poolv1alpha1.ComputePool, error) {
	pools, err := listAs[poolv1alpha1.ComputePool](ctx, r, poolv1alpha1.ComputePoolGVR, "")
	slices.SortFunc(pools, func(a, b poolv1alpha1.ComputePool) int { return cmp.Compare(a.Name, b.Name) })
	return pools, err
}

// books are all that is known of a tenant.
func (r *poolReader) books(ctx context.Context, tenant string, now time.Time) (*accounting.Books, error) {
	account, err := getAs[poolv1alpha1.TenantAccount](ctx, r, poolv1alpha1.TenantAccountGVR, tenant)
	if err != nil {
		return nil, err
	}
	name := cmp.Or(account.Annotations[poolv1alpha1.AnnotationPriceBook], poolv1alpha1.DefaultPriceBook)
	prices, err := getAs[poolv1alpha1.PriceBook](ctx, r, poolv1alpha1.PriceBookGVR, name)
	if err != nil {
		return nil, err
	}
	records, err := listAs[poolv1alpha1.UsageRecord](ctx, r, poolv1alpha1.UsageRecordGVR, tenant)
	if err != nil {
		return nil, err
	}
	invoices, err := r.invoices(ctx, tenant)
	if err != nil {
		return nil, err
	}
	return &accounting.Books{Account: account, Prices: prices, Records: records, Invoices: invoices, Now: now}, nil
}

// invoices are a tenant's, the oldest first.
func (r *poolReader) invoices(ctx context.Context, tenant string) ([]poolv1alpha1.Invoice, error) {
	invoices, err := listAs[poolv1alpha1.Invoice](ctx, r, poolv1alpha1.InvoiceGVR, tenant)
	slices.SortFunc(invoices, func(a, b poolv1alpha1.Invoice) int {
		return cmp.Or(a.Spec.Period.Start.Compare(b.Spec.Period.Start.Time), cmp.Compare(a.Name, b.Name))
	})
	return invoices, err
}

// exported writes down that a final invoice was exported. The first time counts.
func (r *poolReader) exported(ctx context.Context, invoice *poolv1alpha1.Invoice, now time.Time) error {
	if invoice.Status.ExportedAt != nil {
		return nil
	}
	patch := fmt.Appendf(nil, `{"metadata":{"resourceVersion":%q},"status":{"exportedAt":%q}}`, invoice.ResourceVersion, now.UTC().Format(time.RFC3339))
	_, err := r.dyn.Resource(poolv1alpha1.InvoiceGVR).Patch(ctx, invoice.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return inputf("write status.exportedAt of invoice %s: %w", invoice.Name, err)
	}
	return nil
}
