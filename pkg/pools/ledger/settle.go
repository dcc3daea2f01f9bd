// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/accounting"
)

// Settle writes the end of the session of a record that was restored without its status. invoice is the
// final invoice that has it already, or empty. It refuses records that have an end or that the pool
// controller will end, an impossible end, and an invoice that is not final, another tenant's or of a
// time before the end.
func (r *Reader) Settle(ctx context.Context, name types.NamespacedName, end time.Time, invoice string, now time.Time) error {
	records := r.client.Resource(poolv1alpha1.UsageRecordGVR).Namespace(name.Namespace)
	u, err := records.Get(ctx, name.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("the cluster has no UsageRecord %s: %w", name, ErrNotFound)
	} else if err != nil {
		return fmt.Errorf("get UsageRecord %s: %w", name, err)
	}
	var record poolv1alpha1.UsageRecord
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &record); err != nil {
		return fmt.Errorf("read UsageRecord %s: %w", name, err)
	}
	switch {
	case record.Status.End != nil:
		return fmt.Errorf("UsageRecord %s: status.end is %s: it stays", name, record.Status.End.UTC().Format(time.RFC3339))
	case !accounting.Restored(&record):
		return fmt.Errorf("UsageRecord %s was not restored: the pool controller writes its end", name)
	case end.Before(record.Spec.Start.Time):
		return fmt.Errorf("UsageRecord %s: the end %s is before spec.start, %s", name, end.UTC().Format(time.RFC3339), record.Spec.Start.UTC().Format(time.RFC3339))
	case end.After(now):
		return fmt.Errorf("UsageRecord %s: the end %s is in the future", name, end.UTC().Format(time.RFC3339))
	}
	if invoice != "" {
		has, err := getAs[poolv1alpha1.Invoice](ctx, r, poolv1alpha1.InvoiceGVR, invoice)
		switch {
		case err != nil:
			return err
		case !end.Before(has.Spec.Period.End.Time):
			return fmt.Errorf("Invoice %s is of a time before %s: it cannot have the session", invoice, end.UTC().Format(time.RFC3339)) //nolint:staticcheck // it begins with the name of a kind
		case !has.Spec.Finalized || has.Spec.Tenant != record.Spec.Tenant:
			return fmt.Errorf("Invoice %s of %s (final: %t): want a final one of %s", invoice, has.Spec.Tenant, has.Spec.Finalized, record.Spec.Tenant) //nolint:staticcheck // it begins with the name of a kind
		}
	}
	at := metav1.NewTime(end)
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": record.ResourceVersion},
		"status":   poolv1alpha1.UsageRecordStatus{End: &at, Invoice: invoice},
	})
	if err != nil {
		return fmt.Errorf("settle UsageRecord %s: %w", name, err)
	}
	if _, err := records.Patch(ctx, name.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		return fmt.Errorf("settle UsageRecord %s: %w", name, err)
	}
	return nil
}
