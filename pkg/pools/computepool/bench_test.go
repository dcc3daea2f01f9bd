// SPDX-License-Identifier: Apache-2.0

package computepool

import (
	"fmt"
	"testing"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
)

// BenchmarkPlan plans for a pool without due writes, as after most events, and computes its status.
func BenchmarkPlan(b *testing.B) {
	for _, tenants := range []int{100, 5_000} {
		b.Run(fmt.Sprintf("tenants=%d", tenants), func(b *testing.B) {
			pool := examplePool()
			pool.Spec.Quotas, pool.Spec.DefaultQuota = nil, &v1alpha1.DefaultQuota{}
			in := exampleCluster(pool)
			in.Tenants = map[string]string{}
			for i := range tenants {
				in.Tenants[fmt.Sprintf("team-%04d", i)] = fmt.Sprintf("t%04d", i)
			}
			in.Open = in.Tenants
			members := MembersOf(pool, in.Pools, in.Nodes)
			c := CapacityOf(pool, members, nil, in.Pods, in.Tenants)
			have := asKueueHasThem(NewLayout(pool, tenantsOf(in.Open), nil).Render(c, in.Open, nil, false))
			b.ReportAllocs()
			for b.Loop() {
				p := PlanFor(pool, in, have, false)
				if !p.Idle() {
					b.Fatal("nothing has changed, and there is something to do")
				}
				if status := StatusOf(pool, p.observed); len(status.Shares) == 0 {
					b.Fatal("the status has no shares")
				}
			}
		})
	}
}
