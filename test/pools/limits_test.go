// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"
)

// threeTenants is a pool of 64 devices of which 8 are kept back, and 56 may be given out.
const threeTenants = `
  poolType: gpu
  capacity: {total: 64, reserved: 8}
  quotas:
  - {tenant: POOL-a, limit: 32, guaranteed: 16}
  - {tenant: POOL-b, limit: 24, guaranteed: 8}
  - {tenant: POOL-c, limit: 16}`

// Sixty people submit jobs at once, some of which soon end. The recorder checks at each event that
// nobody has more than his limit. In the end each tenant has what is guaranteed, and an equal part
// of the rest: (56-24)/3 = 10 2/3.
func TestSixtySubmittersStayWithinTheirLimits(t *testing.T) {
	s := newScenario(t, dgx(8)...)
	tenants := []string{"a", "b", "c"}
	s.tenants(t, tenants...)
	s.computePool(t, threeTenants)
	s.ready(t)
	if err := s.priorityClass(t.Context(), 0); err != nil {
		t.Fatal(err)
	}

	const submitters, short, long = 60, 2, 2
	var wg sync.WaitGroup
	errs := make([]error, submitters)
	for i := range submitters {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(17, uint64(i)))
			tenant := tenants[i%len(tenants)]
			for j := range short + long {
				w := work{gpus: 1}
				if j < short {
					w.gpus, w.runs = 1<<random.IntN(3), time.Duration(500+random.IntN(2500))*time.Millisecond
				}
				errs[i] = errors.Join(errs[i], s.Create(t.Context(), s.jobObject(tenant, fmt.Sprintf("j%d-%d", i, j), &w)))
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	s.waitFor(t, "the pool is full", func(context.Context) (bool, string) {
		got := s.bound(tenants...)
		return got["a"]+got["b"]+got["c"] == 56, fmt.Sprint(got)
	})
	s.settled(t)

	var sum int64
	guaranteed := map[string]int64{"a": 16, "b": 8, "c": 0}
	for _, tenant := range tenants {
		got := s.counts(tenant)
		sum += got.bound
		if rest := got.bound - guaranteed[tenant]; rest < 10 || rest > 12 {
			t.Errorf("tenant %s holds %d beyond its guarantee of %d, want 10 2/3", tenant, rest, guaranteed[tenant])
		}
		if got.waiting == 0 {
			t.Errorf("nothing of tenant %s waits: the pool was not short", tenant)
		}
	}
	if sum != 56 {
		t.Errorf("%d devices are held, the pool has 56", sum)
	}
	for _, e := range s.evictions() {
		if e.reason != "Preempted" {
			t.Errorf("%s/%s was evicted: %s %s", e.tenant, e.job, e.reason, e.detail)
		}
	}
}

// idle names the jobs that wait although there is quota for them: their tenant's limit and the
// pool have room.
func (s *scenario) idle() (out []string) {
	s.recorder.read(s.name, func(a *account) {
		held := a.reserved()
		var sum int64
		for tenant := range a.limits {
			sum += held[tenant]
		}
		for _, w := range a.workloads {
			if w.reserved || w.finished || w.held || w.asks == 0 {
				continue
			}
			if held[w.tenant]+w.asks <= a.limits[w.tenant] && sum+w.asks <= a.capacity {
				out = append(out, fmt.Sprintf("%s/%s asks for %d, its tenant has %d of %d, the pool has given %d of %d",
					w.tenant, w.job, w.asks, held[w.tenant], a.limits[w.tenant], sum, a.capacity))
			}
		}
	})
	slices.Sort(out)
	return out
}
