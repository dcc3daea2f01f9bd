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

	"sigs.k8s.io/controller-runtime/pkg/client"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// threeTenants is a pool of 64 devices of which 8 are reserved, and 56 may be allocated.
const threeTenants = `
  poolType: gpu
  capacity: {total: 64, reserved: 8}
  quotas:
  - {tenant: POOL-a, limit: 32, guaranteed: 16}
  - {tenant: POOL-b, limit: 24, guaranteed: 8}
  - {tenant: POOL-c, limit: 16}`

// TestSixtySubmitters checks sixty users that submit jobs at once, some of which soon end. The recorder
// checks at each event that no tenant exceeds its limit. In the end each tenant has its guarantee, and an
// equal part of the rest: (56-24)/3 = 10 2/3.
func TestSixtySubmitters(t *testing.T) {
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

// idle names the jobs that wait although there is quota for them: their tenant's limit and the pool have
// room.
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

// TestDeletionAtAdmission deletes jobs at about the time at which they get quota: Kueue's scheduler and
// the pool controller have then decided for jobs that are gone. The recorder checks that no tenant
// exceeds its limit nevertheless, and that no queue would allow it. In the end no devices are held or
// pinned.
func TestDeletionAtAdmission(t *testing.T) {
	s := newScenario(t, dgx(2)...)
	s.tenants(t, "a")
	s.computePool(t, `
  poolType: gpu
  capacity: {total: 16}
  quotas: [{tenant: POOL-a, limit: 12, protectedLimit: 12}]`)
	s.ready(t)
	random := rand.New(rand.NewPCG(17, 0))
	const jobs = 60
	var wg sync.WaitGroup
	var errs [jobs]error
	inTime := 0 // jobs that had quota when they were deleted; guarded by the recorder's lock
	for i := range jobs {
		name := fmt.Sprintf("j%d", i)
		s.elasticJob(t, "a", name, fmt.Sprintf(`
  preemptible: %t
  scaling: {minReplicas: 1, maxReplicas: 1, gpuPerReplica: 4}`, random.IntN(2) == 0))
		after := time.Duration(100+random.IntN(1200)) * time.Millisecond
		if i == 0 { // at least one has quota, however slow the machine is
			s.waitFor(t, "the first job has quota", func(context.Context) (bool, string) {
				got := s.counts("a")
				return got.admitted == 1, fmt.Sprintf("%+v", got)
			})
		}
		wg.Go(func() {
			time.Sleep(after)
			s.recorder.read(s.name, func(a *account) {
				for _, w := range a.workloads {
					if w.job == names.BaseJob(name) && w.devices > 0 {
						inTime++
					}
				}
			})
			errs[i] = s.Delete(t.Context(), &poolv1alpha1.ElasticJob{ObjectMeta: metav1.ObjectMeta{Namespace: s.tenant("a"), Name: name}})
		})
		time.Sleep(time.Duration(random.IntN(100)) * time.Millisecond)
	}
	wg.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d of %d jobs had quota when they were deleted", inTime, jobs)
	s.waitFor(t, "nothing is held, nor pinned", func(ctx context.Context) (bool, string) {
		var cq kueue.ClusterQueue
		if err := s.Get(ctx, client.ObjectKey{Name: names.ClusterQueue(s.name, s.tenant("a"), "")}, &cq); err != nil {
			return false, err.Error()
		}
		own := cq.Spec.ResourceGroups[0].Flavors[0].Resources[0].NominalQuota
		got := s.counts("a")
		return got == (counts{}) && own.IsZero(), fmt.Sprintf("%+v, own quota %s", got, own.String())
	})
}
