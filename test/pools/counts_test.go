// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

// counts are a tenant's numbers from the recorder, which sees all changes in their order, and a moment
// late.
type counts struct {
	bound    int64 // devices of bound pods that are not terminating
	running  int   // pods
	pending  int   // pods without a node, or not yet running
	admitted int   // jobs with quota
	waiting  int   // jobs without
}

func (s *scenario) counts(tenant string) (c counts) {
	namespace := s.tenant(tenant)
	s.recorder.read(s.name, func(a *account) {
		for _, p := range a.pods {
			switch {
			case p.tenant != namespace:
			case p.running:
				c.running++
			default:
				c.pending++
			}
			if p.tenant == namespace && p.holds {
				c.bound += p.devices
			}
		}
		for _, w := range a.workloads {
			switch {
			case w.tenant != namespace || w.finished:
			case w.reserved:
				c.admitted++
			default:
				c.waiting++
			}
		}
	})
	return c
}

// waitBound waits until tenants hold these numbers of devices, by the short names of the tenants.
func (s *scenario) waitBound(t *testing.T, want map[string]int64) {
	t.Helper()
	s.waitFor(t, fmt.Sprintf("%s holds %v", s.name, want), func(context.Context) (bool, string) {
		got := s.bound(slices.Collect(maps.Keys(want))...)
		return maps.Equal(got, want), fmt.Sprint(got)
	})
}

// bound returns the numbers of devices that tenants hold.
func (s *scenario) bound(tenants ...string) map[string]int64 {
	out := map[string]int64{}
	for _, tenant := range tenants {
		out[tenant] = s.counts(tenant).bound
	}
	return out
}

// evictions returns the evictions of the scenario so far, in their order.
func (s *scenario) evictions() (out []eviction) {
	s.recorder.read(s.name, func(a *account) { out = slices.Clone(a.evictions) })
	return out
}

// evicted counts the evictions of a tenant's jobs, by job.
func (s *scenario) evicted(tenant string) map[string]int {
	out := map[string]int{}
	for _, e := range s.evictions() {
		if e.tenant == s.tenant(tenant) {
			out[e.job]++
		}
	}
	return out
}

// evictedAfterPause counts the evictions of jobs that had paused. The others do not concern the check:
// Kueue may requeue a job before it is told to pause it, and the job is evicted once more.
func (s *scenario) evictedAfterPause() (n int) {
	for _, e := range s.evictions() {
		if e.afterPause {
			n++
		}
	}
	return n
}

// describe describes the scenario, for a test that fails.
func (s *scenario) describe() string {
	var b strings.Builder
	s.recorder.read(s.name, func(a *account) {
		if a == nil {
			return
		}
		fmt.Fprintf(&b, "%s: bound %v, quota %v, last change %v ago", s.name, a.bound(), a.reserved(), time.Since(a.changed).Round(time.Second))
		const most = 20
		lines := map[string]int{}
		for _, w := range a.workloads {
			lines[fmt.Sprintf("Workloads of %s with quota %t, finished %t", w.tenant, w.reserved, w.finished)]++
			if !w.reserved && !w.finished {
				lines[fmt.Sprintf("job %s/%s of priority %d, held %t, asks for %d: %s", w.tenant, w.job, w.priority, w.held, w.asks, w.why)]++
			}
		}
		for _, p := range a.pods {
			lines[fmt.Sprintf("pods of %s that hold %t, run %t", p.tenant, p.holds, p.running)]++
		}
		for _, line := range slices.Sorted(maps.Keys(lines)) {
			fmt.Fprintf(&b, "\n  %d %s", lines[line], line)
		}
		for i, e := range a.evictions {
			if i == most {
				fmt.Fprintf(&b, "\n  and %d evictions more", len(a.evictions)-most)
				break
			}
			fmt.Fprintf(&b, "\n  %s evicted %s/%s: %s %s", e.at.Format(time.TimeOnly), e.tenant, e.job, e.reason, e.detail)
		}
	})
	return b.String()
}
