// SPDX-License-Identifier: Apache-2.0

package computepool

import (
	"github.com/nvtopo/nvtopo/pkg/pools/quota"
)

// Division is what the pool's objects say of one resource.
type Division struct {
	Resource resourceName
	Root     int64         // of the root Cohort
	Cohorts  []quota.Queue // those below it, by name
	Queues   []quota.Queue // all ClusterQueues, by name
	Short    int64         // how much more is promised than there is
}

// Divide divides what tenants can share, resource by resource.
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
		// The group's quota is its queues' and the rest its Cohort's own.
		inner := quota.Divide(root.Queues[j].Nominal, g.shares(c, i, pins))
		d.Cohorts = append(d.Cohorts, quota.Queue{
			Name: g.cohort, Nominal: inner.Cohort,
			Borrowing: root.Queues[j].Borrowing, Lending: root.Queues[j].Lending, Weight: root.Queues[j].Weight,
		})
		d.Queues = append(d.Queues, inner.Queues...)
	}
	return d
}

// shares are the groups as shares of the pool. What a group of queues must hold for sure is what
// its queues hold for sure.
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
		s.Protected = s.Limit // what it holds for sure is more than what its jobs protect; see judgeOne
		out = append(out, s)
	}
	return out
}

// sureOf is what shares hold for sure.
func sureOf(shares []quota.Share) (n int64) {
	for _, s := range shares {
		n += max(s.Guaranteed, s.Pinned)
	}
	return n
}

// shares are the queues of a group as shares of it.
func (g *group) shares(c *Capacity, i int, pins Pins) []quota.Share {
	out := make([]quota.Share, 0, len(g.queues))
	for j := range g.queues {
		q := &g.queues[j]
		s := q.share(q.name, c, i, pins.of(q, c.Devices[i].resource()))
		if q.protected == notSaid && g.cohort != "" { // what the group may protect bounds its queues
			s.Protected = s.Limit
		}
		out = append(out, s)
	}
	return out
}

// share is the promise as far as one resource goes. A limit that was lowered below what is pinned
// counts once the pins are gone.
func (p promise) share(name string, c *Capacity, i int, pinned int64) quota.Share {
	s := quota.Share{
		Name: name, Guaranteed: c.part(p.guaranteed, i), Limit: c.part(p.limit, i),
		Weight: p.weight, Pinned: pinned, Keep: p.keep,
	}
	s.Limit = max(s.Limit, s.Guaranteed, s.Pinned)
	s.Protected = p.mayProtect(c, i)
	return s
}

// mayProtect is the most that jobs may hold of one resource that must not be preempted: what is
// guaranteed, unless the spec says another number.
func (p promise) mayProtect(c *Capacity, i int) int64 {
	if p.protected == notSaid {
		return c.part(p.guaranteed, i)
	}
	return c.part(min(p.protected, p.limit), i)
}
