// SPDX-License-Identifier: Apache-2.0

package computepool

import (
	"cmp"
	"slices"
	"time"

	"github.com/nvtopo/nvtopo/pkg/pools/quota"
)

// Request is a non-preemptible job that has not been released to Kueue yet.
type Request struct {
	Job      string // namespace/name
	Queue    string // its ClusterQueue
	Devices  Amounts
	Priority int64 // the greater one goes first
	Since    time.Time
}

// Refusal is a request that is not granted, with the reason.
type Refusal struct {
	Request
	Why Why
}

// Protect returns the requests that can be released now, most important and oldest first, and the pins
// after that. It is quota.Protect on each level of the layout and for each resource: a job is granted
// when all of them grant it.
func (l *Layout) Protect(c *Capacity, pins Pins, requests []Request) (granted []Request, refused []Refusal, after Pins) {
	available := c.ForTenants()
	after = pins.clone()
	for _, r := range inOrder(requests) {
		why := l.judge(c, available, after, &r)
		if why.Reason != "" {
			refused = append(refused, Refusal{Request: r, Why: why})
			continue
		}
		after.with(r.Queue, r.Devices)
		granted = append(granted, r)
	}
	return granted, refused, after
}

// withGone adds to pins the quota of workloads whose jobs are gone, within the limits. A job that is
// deleted before it has quota is no longer pinned, and the next one is released. Kueue may have admitted
// the first nevertheless, and write so later. Until it notices, both may exceed the limit, and the next
// job waits: a queue whose own quota exceeds the limit would lend as much to other queues. The pool's
// available devices are no bound here: quota that is held but not promised gets jobs evicted.
func (l *Layout) withGone(c *Capacity, pins, gone Pins) Pins {
	out := pins.clone()
	for j := range l.groups {
		g := &l.groups[j]
		for k := range g.queues {
			q := &g.queues[k]
			for i := range c.Devices {
				r := c.Devices[i].resource()
				n := gone.of(q, r)
				if !q.leaving { // such a queue lends nothing and has no limit
					n = min(n, g.room(c, i, out, k))
				}
				if n > 0 {
					out.with(q.name, Amounts{r: n})
				}
			}
		}
	}
	return out
}

// room is the number of further units that can be pinned in a queue of the group, within its limit and
// the group's.
func (g *group) room(c *Capacity, i int, pins Pins, at int) int64 {
	inner := g.shares(c, i, pins)
	s := &inner[at]
	room := s.Limit - s.Pinned
	if g.cohort == "" {
		return room
	}
	sure := sureOf(inner)
	return min(room, max(0, s.Guaranteed-s.Pinned)+g.share(g.cohort, c, i, sure).Limit-sure)
}

// groupOf returns the group of a queue that admits jobs; nil if none has it.
func (l *Layout) groupOf(name string) *group {
	for i := range l.groups {
		g := &l.groups[i]
		if slices.ContainsFunc(g.queues, func(q queue) bool { return q.name == name && !q.leaving }) {
			return g
		}
	}
	return nil
}

// judge returns why a job's devices cannot be pinned beside the existing pins; an empty Why if they can.
func (l *Layout) judge(c *Capacity, available Amounts, pins Pins, r *Request) Why {
	g := l.groupOf(r.Queue)
	if g == nil {
		return whyNoQueue(r.Queue)
	}
	counted := false
	for i := range c.Devices {
		devices := r.Devices[c.Devices[i].resource()]
		if devices == 0 {
			continue
		}
		counted = true
		if why := l.judgeOne(c, i, available[c.Devices[i].resource()], g, pins, &quota.Request{Share: r.Queue, Devices: devices}); why.Reason != "" {
			return why
		}
	}
	if !counted {
		return whyNoDevices(c)
	}
	return Why{}
}

// judgeOne is judge for one resource.
func (l *Layout) judgeOne(c *Capacity, i int, available int64, g *group, pins Pins, r *quota.Request) Why {
	outer := l.shares(c, i, pins)
	at := slices.IndexFunc(g.queues, func(q queue) bool { return q.name == r.Share })
	if g.cohort == "" {
		return whyOf(c, i, nameOf(&g.queues[at]), r.Devices, quota.Judge(available, outer, *r))
	}
	// Within the group: no more than the group may protect, and nothing of the guarantees of its other
	// queues. Then the group within the pool: its sure amount must grow by as much as its queues' does.
	inner, most := g.shares(c, i, pins), g.mayProtect(c, i)
	own := outer[slices.IndexFunc(outer, func(s quota.Share) bool { return s.Name == g.cohort })]
	whole := quota.Share{Name: r.Share, Limit: own.Limit, Protected: most, Pinned: pinnedOf(inner)}
	all, one := nameOfGroup(g), nameOf(&g.queues[at])
	for _, step := range []struct {
		of      who
		verdict quota.Verdict
	}{
		{all, quota.Judge(whole.Pinned+r.Devices, []quota.Share{whole}, *r)},
		{one, quota.Judge(max(own.Guaranteed, most), inner, *r)},
		{all, quota.Judge(available, outer, quota.Request{Share: g.cohort, Devices: sureMore(inner, r.Share, r.Devices)})},
	} {
		if why := whyOf(c, i, step.of, r.Devices, step.verdict); why.Reason != "" {
			return why
		}
	}
	return Why{}
}

// pinnedOf sums the pins of shares.
func pinnedOf(shares []quota.Share) (n int64) {
	for _, s := range shares {
		n += s.Pinned
	}
	return n
}

// sureMore is the growth of a share's sure amount when devices are pinned in it.
func sureMore(shares []quota.Share, name string, devices int64) int64 {
	for _, s := range shares {
		if s.Name == name {
			return max(s.Guaranteed, s.Pinned+devices) - max(s.Guaranteed, s.Pinned)
		}
	}
	return 0
}

// inOrder returns requests sorted by priority, age and name, without changing its argument.
func inOrder(requests []Request) []Request {
	return slices.SortedFunc(slices.Values(requests), func(a, b Request) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), a.Since.Compare(b.Since), cmp.Compare(a.Job, b.Job))
	})
}
