// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	topologyv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
)

// excess is a moment in which a tenant, or all of them, had more than allowed.
type excess struct {
	said   string
	before []string // the last changes of quota
	// still judges it again with the present knowledge of deleted Jobs.
	still func() bool
}

// checkPods judges the devices of bound pods at a version. A deleted Job's quota is another's at once,
// and the garbage collector deletes its pods some time later: until then they are not included, however
// slow it is. Their deletion is checked when the scenario leaves, see overdue. The recorder may receive
// the Job later than the pods.
func (a *account) checkPods(version string) {
	holders := a.holders()
	bound := func() map[string]int64 {
		return devicesByTenant(slices.DeleteFunc(slices.Clone(holders), func(p podSeen) bool { return a.leaves(p.job, version) }))
	}
	a.check("bound pods", bound, bound)
}

// leaves reports whether a Job had been deleted before a version. Versions of all kinds are revisions of
// one etcd.
func (a *account) leaves(job types.UID, version string) bool {
	deleted, known := a.deleted[job]
	if !known {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(deleted, version)
	return err == nil && order < 0
}

// overdue describes a bound pod whose Job was deleted, or a job with quota whose end was lost, and is
// empty if there is none. Neither is included in a limit, and both have to go.
func (a *account) overdue() string {
	for _, p := range a.holders() {
		if version, deleted := a.deleted[p.job]; deleted {
			return fmt.Sprintf("a pod of %s is bound whose Job %s was deleted at version %s", p.tenant, p.job, version)
		}
	}
	for _, w := range a.workloads {
		if w.endLost && w.devices > 0 {
			return fmt.Sprintf("job %s/%s has ended and has quota for %d", w.tenant, w.job, w.devices)
		}
	}
	return ""
}

// checkQuota judges the reserved quota. That of a job whose end was lost is another's, and not included
// until Kueue notices, see overdue.
//
// In the cycle in which Kueue evicts a job, it takes the job's quota as free for any job that fits beside
// the one that it evicts for (fits in its pkg/scheduler/scheduler.go). So until an evicted job has
// stopped, all quota together may exceed the pool; the kept quota may not.
func (a *account) checkQuota() {
	reserved := a.quotas(func(w *workloadSeen) bool { return !w.endLost })
	kept := a.quotas(func(w *workloadSeen) bool { return !w.endLost && !w.evicted })
	a.check("reserved quota", func() map[string]int64 { return reserved }, func() map[string]int64 { return kept })
}

// checkQueue judges the greatest quota that Kueue may give a tenant with one queue: the queue's own
// quota, and its borrowing limit. A tenant that may have all of the pool is bounded by the Cohort's
// quota.
func (a *account) checkQueue(cq *kueue.ClusterQueue) {
	_, tenant, _ := strings.Cut(cq.Name, ".")
	if limit, known := a.limits[tenant]; a.unordered || !known || limit >= a.capacity {
		return
	}
	for _, g := range cq.Spec.ResourceGroups {
		for i := range g.Flavors {
			for j := range g.Flavors[i].Resources {
				r := &g.Flavors[i].Resources[j]
				if r.Name != topologyv1alpha1.DefaultResource {
					continue
				}
				most := int64(math.MaxInt64) // without a borrowing limit
				if r.BorrowingLimit != nil {
					most = r.NominalQuota.Value() + r.BorrowingLimit.Value()
				}
				if most > a.limits[tenant] {
					a.add(fmt.Sprintf("quota and borrowing of %s: %d, limit %d", tenant, most, a.limits[tenant]),
						func() bool { return most > a.limits[tenant] }) // a higher one is written before it is noted here
				}
			}
		}
	}
}

// check notes tenants above their limits, and a total above the pool's capacity and the quota that Kueue
// gave twice when it lost an eviction.
func (a *account) check(of string, held, kept func() map[string]int64) {
	if a.unordered || len(a.limits) == 0 {
		return
	}
	holds, keeps := held(), kept()
	for _, tenant := range slices.Sorted(maps.Keys(a.limits)) {
		if limit := a.limits[tenant]; holds[tenant] > limit {
			a.add(fmt.Sprintf("%s of %s: %d, limit %d", of, tenant, holds[tenant], limit), func() bool { return held()[tenant] > limit })
		}
	}
	tenants := maps.Clone(a.limits)
	all := func(of map[string]int64) (sum int64) {
		for tenant := range tenants {
			sum += of[tenant]
		}
		return sum
	}
	lost := a.lost()
	if most := a.capacity + lost; all(keeps) > most {
		a.add(fmt.Sprintf("%s of all tenants: %v, the pool has %d, %d of lost evictions", of, keeps, a.capacity, lost),
			func() bool { return all(kept()) > most })
	}
}

// add notes an excess. Excesses that proved to be none are dropped whenever as many new ones have come:
// each has a copy of the bound pods.
func (a *account) add(said string, still func() bool) {
	if len(a.wrong) >= 2*a.judged+64 {
		a.judged = len(a.beyond())
	}
	a.wrong = append(a.wrong, excess{said: time.Now().Format(time.StampMilli) + ": " + said, before: slices.Clone(a.history), still: still})
}

// beyond returns the excesses that are still valid.
func (a *account) beyond() []excess {
	a.wrong = slices.DeleteFunc(a.wrong, func(e excess) bool { return !e.still() })
	return a.wrong
}

// holders returns the bound pods.
func (a *account) holders() (out []podSeen) {
	for _, p := range a.pods {
		if p.holds {
			out = append(out, p)
		}
	}
	return out
}

// bound returns the number of devices of each tenant's bound pods.
func (a *account) bound() map[string]int64 { return devicesByTenant(a.holders()) }

func devicesByTenant(pods []podSeen) map[string]int64 {
	out := map[string]int64{}
	for _, p := range pods {
		out[p.tenant] += p.devices
	}
	return out
}
