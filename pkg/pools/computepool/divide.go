// SPDX-License-Identifier: Apache-2.0

package computepool

import (
	"github.com/nvtopo/nvtopo/pkg/pools/quota"
)

// Division is the quota of one resource in all of the pool's objects.
type Division struct {
	Resource resourceName
	Root     int64         // of the root Cohort
	Cohorts  []quota.Queue // the Cohorts below the root, by name
	Queues   []quota.Queue // all ClusterQueues, by name
	Short    int64         // how much the promises exceed the available amount
}

// Divide divides the amount that tenants can share into quotas, resource by resource.
func (l *Layout) Divide(c *Capacity, pins Pins) []Division {
	available := c.ForTenants()
	out := make([]Division, 0, len(c.Devices))
	for i := range c.Devices {
		out = append(out, l.divide(c, i, available[c.Devices[i].resource()], pins))
	}
	return out
}

func (l *Layout) divide(c *Capacity, i int, available int64, pins Pins) Division {
	d := Division{Resource: c.Devices[i].resource()}
	outer := l.shares(c, i, pins)
	root := quota.Divide(available, outer)
	d.Root, d.Short = root.Cohort, root.Short
	for j := range l.groups {
		g := &l.groups[j]
		if g.cohort == "" {
			d.Queues = append(d.Queues, root.Queues[j])
			continue
		}
		// The group's quota is divided among its queues, and the rest is its Cohort's own.
		inner := quota.Divide(root.Queues[j].Nominal, g.shares(c, i, pins))
		d.Cohorts = append(d.Cohorts, quota.Queue{
			Name: g.cohort, Nominal: inner.Cohort,
			Borrowing: root.Queues[j].Borrowing, Lending: root.Queues[j].Lending, Weight: root.Queues[j].Weight,
		})
		d.Queues = append(d.Queues, inner.Queues...)
	}
	return d
}

// shares returns the groups as shares of the pool. A group of queues is pinned with the sum of the
// amounts that its queues hold for sure.
func (l *Layout) shares(c *Capacity, i int, pins Pins) []quota.Share {
	out := make([]quota.Share, 0, len(l.groups))
	for j := range l.groups {
		g := &l.groups[j]
		inner := g.shares(c, i, pins)
		if g.cohort == "" {
			out = append(out, inner[0])
			continue
		}
		s := g.share(g.cohort, c, i, sureOf(inner))
		s.Protected = s.Limit // the group's sure amount is more than its jobs protect; see judgeOne
		out = append(out, s)
	}
	return out
}

// sureOf sums the amounts that shares hold for sure: the greater of the guarantee and the pins of each.
func sureOf(shares []quota.Share) (n int64) {
	for _, s := range shares {
		n += max(s.Guaranteed, s.Pinned)
	}
	return n
}

// shares returns the queues of a group as shares of the group.
func (g *group) shares(c *Capacity, i int, pins Pins) []quota.Share {
	out := make([]quota.Share, 0, len(g.queues))
	for j := range g.queues {
		q := &g.queues[j]
		s := q.share(q.name, c, i, pins.of(q, c.Devices[i].resource()))
		if q.protected == notSaid && g.cohort != "" { // its bound is the group's protected limit
			s.Protected = s.Limit
		}
		out = append(out, s)
	}
	return out
}

// share returns the part of the promise that belongs to one resource. A limit that was lowered below the
// pins takes effect once the pins are gone.
func (p promise) share(name string, c *Capacity, i int, pinned int64) quota.Share {
	s := quota.Share{
		Name: name, Guaranteed: c.part(p.guaranteed, i), Limit: c.part(p.limit, i),
		Weight: p.weight, Pinned: pinned, Keep: p.keep,
	}
	s.Limit = max(s.Limit, s.Guaranteed, s.Pinned)
	s.Protected = p.mayProtect(c, i)
	return s
}

// mayProtect is the most of one resource that non-preemptible jobs may hold: the guarantee, unless the
// spec has another number.
func (p promise) mayProtect(c *Capacity, i int) int64 {
	if p.protected == notSaid {
		return c.part(p.guaranteed, i)
	}
	return c.part(min(p.protected, p.limit), i)
}
