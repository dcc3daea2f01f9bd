// SPDX-License-Identifier: Apache-2.0

package computepool

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
)

// guaranteesReduced returns the condition that is true while a guarantee of the inner list does not hold
// because the outer list's guarantee, which it is taken out of, is less.
func guaranteesReduced(l *Layout) metav1.Condition {
	reason, next := reasonTenantsLess, "raise quotas[].guaranteed, set hierarchy: QueueFirst, or, if tenants need no shares of their own, remove quotas and defaultQuota"
	outer := "a tenant's queues come out of what quotas guarantees to the tenant, and defaultQuota guarantees nothing"
	if l.pool.Spec.Hierarchy == v1alpha1.QueueFirst {
		reason, next = reasonQueuesLess, "raise queues[].guaranteedCapacity, or set hierarchy: TenantFirst"
		outer = "guarantees of tenants come out of those of the queue"
	}
	reduced := l.reduced()
	return condition(v1alpha1.ConditionGuaranteesReduced, len(reduced) > 0, reason,
		fmt.Sprintf("%s: %s; %s", outer, some(reduced), next))
}

// reduced names the parts of a pool's inner list that are guaranteed less than the spec states. It
// depends on the spec alone: the parts of an unlisted tenant are included before there is one.
func (l *Layout) reduced() []string {
	if !twoLevels(l.pool) {
		return nil
	}
	var named []string
	for i := range l.pool.Spec.Queues {
		named = append(named, l.pool.Spec.Queues[i].Tenants...)
	}
	shares := l.quotas(named)
	if l.pool.Spec.DefaultQuota != nil {
		shares = append(shares, l.unlisted(""))
	}
	all := &Layout{pool: l.pool}
	if l.pool.Spec.Hierarchy == v1alpha1.QueueFirst {
		all.queueFirst(shares)
	} else {
		all.tenantFirst(shares)
	}
	var out []string
	for q := range all.all() {
		if q.guaranteed == q.asked {
			continue
		}
		tenant := "tenant " + q.tenant
		if q.tenant == "" {
			tenant = "each tenant of defaultQuota"
		}
		out = append(out, fmt.Sprintf("%s in queue %s has %d of %d devices", tenant, q.queue, q.guaranteed, q.asked))
	}
	return out
}
