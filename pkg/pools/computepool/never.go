// SPDX-License-Identifier: Apache-2.0

package computepool

import (
	"fmt"

	batchv1 "k8s.io/api/batch/v1"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// NeverFits returns why a tenant's Job can never start under its pool's spec, or "": it requests more
// devices than the limit of its share, or than tenants can share.
func NeverFits(pool *v1alpha1.ComputePool, tenant string, job *batchv1.Job) string {
	l := NewLayout(pool, []string{tenant}, nil)
	var devices int64
	held := jobDevices(job, Units(pool))
	for _, u := range Units(pool) {
		devices += (held[resourceName(u.Resource)] + u.PerDevice - 1) / u.PerDevice
	}
	shared := int64(pool.Spec.Capacity.Total - pool.Spec.Capacity.Reserved)
	for i := range l.groups {
		g := &l.groups[i]
		for j := range g.queues {
			q := &g.queues[j]
			own := q.tenant == "" || q.tenant == tenant
			if !own || names.LocalQueue(pool.Name, q.queue) != job.Labels[kueue.LabelQueue] || !mayUse(q.tenants, tenant) {
				continue
			}
			most, of := q.limit, "the limit of "+nameOf(q).name
			if g.limit < most {
				most, of = g.limit, "the limit of "+nameOfGroup(g).name
			}
			if shared < most {
				most, of = shared, "what tenants can share"
			}
			if devices > most {
				return fmt.Sprintf("the job asks for %d devices, and %s in ComputePool %s is %d: it can never start; make a new one with fewer, or have the limit raised",
					devices, of, pool.Name, most)
			}
		}
	}
	return ""
}
