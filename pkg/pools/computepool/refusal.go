// SPDX-License-Identifier: Apache-2.0

package computepool

import (
	"fmt"
	"slices"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
)

// Reasons why a tenant's jobs have no queue in a pool.
const (
	ReasonNoTenant           = "NoTenant"
	ReasonQuotaNotConfigured = "QuotaNotConfigured"
	ReasonQueueNotNamed      = "QueueNotNamed"
	ReasonQueueNotFound      = "QueueNotFound"
	ReasonQueueNotAllowed    = "QueueNotAllowed"
)

// Refusal says why jobs of a tenant have no queue in a pool: a constant reason, and a message that
// names the field to change. Both are empty where they have one. tenant is the value of the label
// of the job's namespace, empty if it has none; queue is what the job names, or empty.
func Refusal(pool *v1alpha1.ComputePool, tenant, queue string) (reason, message string) {
	spec := &pool.Spec
	if tenant == "" {
		return ReasonNoTenant, fmt.Sprintf("the namespace has no label %s, so no quota is its", v1alpha1.LabelTenant)
	}
	if reason, message := refusedQueue(pool, tenant, queue); reason != "" {
		return reason, message
	}
	onlyQueues := len(spec.Queues) > 0 && len(spec.Quotas) == 0
	listed := slices.ContainsFunc(spec.Quotas, func(q v1alpha1.TenantQuota) bool { return q.Tenant == tenant })
	switch {
	case listed || spec.DefaultQuota == nil && onlyQueues:
		return "", ""
	case spec.DefaultQuota == nil:
		return ReasonQuotaNotConfigured, fmt.Sprintf("ComputePool %s lists no tenant %s in spec.quotas, and has no spec.defaultQuota", pool.Name, tenant)
	case !tenantName.MatchString(tenant):
		return ReasonQuotaNotConfigured, fmt.Sprintf("ComputePool %s: spec.defaultQuota is not for tenant %q: its name must be of a-z, 0-9 and -", pool.Name, tenant)
	default:
		return "", ""
	}
}

func refusedQueue(pool *v1alpha1.ComputePool, tenant, queue string) (reason, message string) {
	queues := pool.Spec.Queues
	if queue == "" && len(queues) == 0 {
		return "", ""
	}
	if queue == "" {
		return ReasonQueueNotNamed, fmt.Sprintf("ComputePool %s has queues, and the job names none of them", pool.Name)
	}
	i := slices.IndexFunc(queues, func(q v1alpha1.PoolQueue) bool { return q.Name == queue })
	if i < 0 {
		return ReasonQueueNotFound, fmt.Sprintf("ComputePool %s has no queue %s in spec.queues", pool.Name, queue)
	}
	if !mayUse(queues[i].Tenants, tenant) {
		return ReasonQueueNotAllowed, fmt.Sprintf("ComputePool %s: spec.queues[%d].tenants of queue %s does not list tenant %s", pool.Name, i, queue, tenant)
	}
	return "", ""
}
