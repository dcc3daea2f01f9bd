// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// excess is that a tenant, or all of them, had more than allowed.
type excess struct {
	said string
	// still judges it again by what is known of deleted Jobs now.
	still func() bool
}

// checkPods judges what bound pods hold at a version. A deleted Job's quota is another's at once, and
// the garbage collector deletes its pods some time later: these do not count. The recorder may hear of
// the Job later than of the pods.
func (a *account) checkPods(version string) {
	holders := a.holders()
	bound := func() map[string]int64 {
		return devicesByTenant(slices.DeleteFunc(slices.Clone(holders), func(p podSeen) bool { return a.deletedBefore(p.job, version) }))
	}
	a.check("bound pods", bound, bound)
}

// deletedBefore reports whether a Job is known to have been deleted before a version.
func (a *account) deletedBefore(job types.UID, version string) bool {
	deleted, known := a.deleted[job]
	if !known {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(deleted, version)
	return err == nil && order < 0
}

// checkQuota judges for what there is quota.
func (a *account) checkQuota() {
	reserved, kept := a.reserved(), a.kept()
	a.check("reserved quota", func() map[string]int64 { return reserved }, func() map[string]int64 { return kept })
}

// check notes which tenant holds more than its limit, and whether what all of them keep is more
// than the pool and what Kueue gave twice when it lost an eviction.
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

func (a *account) add(said string, still func() bool) {
	const first = 10 // what comes after them helps nobody
	switch len(a.beyond()) {
	case first:
		return
	case 0:
		a.before = slices.Clone(a.history)
	}
	a.wrong = append(a.wrong, excess{said: time.Now().Format(time.StampMilli) + ": " + said, still: still})
}

// beyond is who was ever beyond a limit.
func (a *account) beyond() []excess {
	a.wrong = slices.DeleteFunc(a.wrong, func(e excess) bool { return !e.still() })
	return a.wrong
}

// holders are the bound pods.
func (a *account) holders() (out []podSeen) {
	for _, p := range a.pods {
		if p.holds {
			out = append(out, p)
		}
	}
	return out
}

// bound is how many devices the bound pods of each tenant have.
func (a *account) bound() map[string]int64 { return devicesByTenant(a.holders()) }

func devicesByTenant(pods []podSeen) map[string]int64 {
	out := map[string]int64{}
	for _, p := range pods {
		out[p.tenant] += p.devices
	}
	return out
}
