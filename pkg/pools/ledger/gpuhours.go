// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/accounting"
)

// GPUHours returns the GPU hours of a period, of one tenant or of all; ErrNotFound if the tenant does
// not exist.
func (r *Reader) GPUHours(ctx context.Context, q accounting.HoursQuery) (*accounting.GPUHours, error) {
	// The invoices first: a session is kept for --usage-retention-days after its invoice is final, and
	// so is in one of the two lists at least.
	invoices, err := r.Invoices(ctx, q.Tenant)
	if err != nil {
		return nil, err
	}
	records, err := r.Records(ctx, q.Tenant)
	if err != nil {
		return nil, err
	}
	pools, err := r.Pools(ctx)
	if err != nil {
		return nil, err
	}
	tenants, err := r.tenants(ctx, pools)
	if err != nil {
		return nil, err
	}
	q.Foreign = foreignUse(pools)
	hours := accounting.GPUHoursOf(q, tenants, records, invoices)
	if len(hours.ByTenant) > 0 || q.Tenant == "" {
		return hours, nil
	}
	return nil, noTenant(q.Tenant, tenants)
}

// foreignUse returns a text for each pool on the devices that pods of no tenant hold.
func foreignUse(pools []poolv1alpha1.ComputePool) (out []string) {
	for i := range pools {
		if c := meta.FindStatusCondition(pools[i].Status.Conditions, poolv1alpha1.ConditionForeignUse); c != nil && c.Status == metav1.ConditionTrue {
			out = append(out, "pool "+pools[i].Name+": "+c.Message)
		}
	}
	return out
}

// FindTenant returns ErrNotFound if the tenant does not exist, and nil for one without use.
func (r *Reader) FindTenant(ctx context.Context, tenant string) error {
	pools, err := r.Pools(ctx)
	if err != nil {
		return err
	}
	tenants, err := r.tenants(ctx, pools)
	if err != nil || slices.Contains(tenants, tenant) {
		return err
	}
	return noTenant(tenant, tenants)
}

// tenantError is an ErrNotFound that lists the existing tenants.
type tenantError struct{ text string }

func (e *tenantError) Error() string { return e.text }

func (e *tenantError) Is(target error) bool { return target == ErrNotFound }

func noTenant(tenant string, tenants []string) error {
	if len(tenants) == 0 {
		return &tenantError{fmt.Sprintf("there is no tenant %s; no namespace has the label %s", tenant, poolv1alpha1.LabelTenant)}
	}
	return &tenantError{fmt.Sprintf("there is no tenant %s; tenants are %s", tenant, strings.Join(tenants, ", "))}
}

// tenants returns the tenants that a pool names, or that have an account or a namespace, sorted by name.
func (r *Reader) tenants(ctx context.Context, pools []poolv1alpha1.ComputePool) ([]string, error) {
	accounts, err := listAs[poolv1alpha1.TenantAccount](ctx, r, poolv1alpha1.TenantAccountGVR, "")
	if err != nil {
		return nil, err
	}
	namespaces, err := r.client.Resource(v1.SchemeGroupVersion.WithResource("namespaces")).List(ctx, metav1.ListOptions{LabelSelector: poolv1alpha1.LabelTenant})
	if err != nil {
		return nil, fmt.Errorf("list namespaces: %w", err)
	}
	known := map[string]bool{}
	for i := range pools {
		for _, q := range pools[i].Spec.Quotas {
			known[q.Tenant] = true
		}
		for _, q := range pools[i].Spec.Queues {
			for _, tenant := range q.Tenants {
				known[tenant] = true
			}
		}
	}
	for i := range accounts {
		known[accounts[i].Name] = true
	}
	for i := range namespaces.Items {
		known[namespaces.Items[i].GetLabels()[poolv1alpha1.LabelTenant]] = true
	}
	delete(known, "") // a namespace whose label is empty
	return slices.Sorted(maps.Keys(known)), nil
}
