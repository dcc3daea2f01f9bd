// SPDX-License-Identifier: Apache-2.0

package invoicing

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/accounting"
)

// storage adds up the bytes of etcd that the records and batches of all tenants take, and compares them
// with a limit. At the limit nothing is held back or deleted: the condition is for people.
type storage struct {
	limit int64 // bytes; 0: none

	mu    sync.Mutex
	bytes map[string]int64 // guarded by mu; by tenant
	total int64            // guarded by mu
	// counted reports that bytes has all tenants. Until then total is too small. Guarded by mu.
	counted bool
}

func newStorage(limit int64) *storage { return &storage{limit: limit, bytes: map[string]int64{}} }

// set records the bytes of a tenant, and returns the total of all tenants.
func (s *storage) set(tenant string, bytes int64) (total int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total += bytes - s.bytes[tenant]
	if s.bytes[tenant] = bytes; bytes == 0 {
		delete(s.bytes, tenant)
	}
	return s.total
}

// countStored counts the bytes of all tenants, once: a new process would otherwise take the few tenants
// that it has billed for all, and report room for a moment.
func (r *reconciler) countStored(ctx context.Context) error {
	r.storage.mu.Lock()
	defer r.storage.mu.Unlock()
	if r.storage.counted || r.storage.limit == 0 {
		return nil
	}
	// The caches have synced: the manager starts no controller before.
	var records v1alpha1.UsageRecordList
	var batches v1alpha1.UsageBatchList
	if err := errors.Join(r.client.List(ctx, &records, client.UnsafeDisableDeepCopy), r.client.List(ctx, &batches, client.UnsafeDisableDeepCopy)); err != nil {
		return fmt.Errorf("count what records and batches take: %w", err)
	}
	bytes := map[string]int64{}
	for i := range records.Items {
		bytes[records.Items[i].Spec.Tenant] += accounting.StoredBytes(records.Items[i:i+1], nil)
	}
	for i := range batches.Items {
		bytes[batches.Items[i].Spec.Tenant] += accounting.StoredBytes(nil, batches.Items[i:i+1])
	}
	r.storage.bytes, r.storage.total, r.storage.counted = bytes, 0, true
	for _, n := range bytes {
		r.storage.total += n
	}
	return nil
}

// setStored sets the condition on whether the records and batches of all tenants have reached the limit.
// It is absent until they first do. own is the bytes of the account's tenant.
func (r *reconciler) setStored(status *v1alpha1.TenantAccountStatus, account *v1alpha1.TenantAccount, own int64) {
	total := r.storage.set(account.Name, own)
	r.metrics.stored.WithLabelValues(account.Name).Set(float64(own))
	limit := r.storage.limit
	switch was := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionUsageStorageFull); {
	case limit > 0 && total >= limit:
		r.set(status, account, v1alpha1.ConditionUsageStorageFull, metav1.ConditionTrue, reasonAboveLimit, fmt.Sprintf(
			"UsageRecords and UsageBatches of all tenants take %s of %s, those of this tenant %s. Pods run on and are billed. "+
				"Export final invoices (--export-dir, or nvtopo pool invoice TENANT --export), shorten --usage-retention-days, or raise --usage-storage-limit",
			inMi(total), inMi(limit), inMi(own)))
	case was != nil:
		r.set(status, account, v1alpha1.ConditionUsageStorageFull, metav1.ConditionFalse, reasonBelowLimit, "UsageRecords and UsageBatches take less than --usage-storage-limit")
	}
}

// inMi formats bytes as whole Mi, rounded up: a condition that changed with each record would be written
// with each.
func inMi(bytes int64) string {
	const mi = 1 << 20
	return resource.NewQuantity((bytes+mi-1)/mi*mi, resource.BinarySI).String()
}
