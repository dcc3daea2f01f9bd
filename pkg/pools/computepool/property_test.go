// SPDX-License-Identifier: Apache-2.0

package computepool

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
)

// randomPool returns a pool with quotas, queues or both that the API server would admit.
func randomPool(rnd *rand.Rand) *v1alpha1.ComputePool {
	pool := examplePool()
	s := &pool.Spec
	s.Capacity = v1alpha1.PoolCapacity{Total: 40 + rnd.Int32N(40), Reserved: rnd.Int32N(10)}
	s.Quotas = nil
	limit := func(guaranteed int32) *int32 {
		if rnd.IntN(3) == 0 {
			return nil
		}
		n := guaranteed + rnd.Int32N(s.Capacity.Total-guaranteed+1)
		return &n
	}
	share := func(free *int32) int32 {
		n := rnd.Int32N(*free/2 + 1)
		*free -= n
		return n
	}
	protected := func(limit *int32) *int32 {
		most := s.Capacity.Total
		if limit != nil {
			most = *limit
		}
		n := most - rnd.Int32N(most/2+1)
		return []*int32{nil, &n, &n}[rnd.IntN(3)]
	}
	what := rnd.IntN(3)
	if free := s.Capacity.Total - s.Capacity.Reserved; what != 1 {
		for i := range 1 + rnd.IntN(4) {
			g := share(&free)
			q := v1alpha1.TenantQuota{Tenant: string(rune('a' + i)), Guaranteed: g, Limit: limit(g), Weight: v1alpha1.Weight(1+rnd.Int32N(50)) / 10}
			q.ProtectedLimit = protected(q.Limit)
			s.Quotas = append(s.Quotas, q)
		}
	}
	if free := s.Capacity.Total - s.Capacity.Reserved; what != 0 {
		for i := range 1 + rnd.IntN(3) {
			g := share(&free)
			keep := rnd.IntN(2) == 0
			q := v1alpha1.PoolQueue{Name: fmt.Sprint("q", i), GuaranteedCapacity: g, MaxCapacity: limit(g), Weight: v1alpha1.Weight(1+rnd.Int32N(50)) / 10, Reclaimable: &keep}
			q.ProtectedCapacity = protected(q.MaxCapacity)
			if rnd.IntN(3) == 0 {
				q.Tenants = []string{"a", "c"}
			}
			s.Queues = append(s.Queues, q)
		}
	}
	s.Hierarchy = []v1alpha1.Hierarchy{v1alpha1.TenantFirst, v1alpha1.QueueFirst}[rnd.IntN(2)]
	return pool
}

// randomNodes have two resources in any proportion.
func randomNodes(rnd *rand.Rand) []*v1.Node {
	nodes := []*v1.Node{}
	for i := range rnd.IntN(10) {
		nodes = append(nodes, testNode(fmt.Sprint("n", i), "pool", rnd.Int64N(9), []v1.ResourceName{nvidia, nvidia, amd}[rnd.IntN(3)]))
	}
	return nodes
}

// randomRequests returns requests for queues of the layout, and some for others.
func randomRequests(rnd *rand.Rand, l *Layout) []Request {
	var queues []string
	for q := range l.all() {
		queues = append(queues, q.name)
	}
	queues = append(queues, "elsewhere")
	var out []Request
	for i := range rnd.IntN(8) {
		out = append(out, Request{
			Job: fmt.Sprint("job-", i), Queue: queues[rnd.IntN(len(queues))], Priority: rnd.Int64N(3), Since: time.Unix(rnd.Int64N(3), 0),
			Devices: Amounts{[]resourceName{nvidia, nvidia, amd}[rnd.IntN(3)]: 1 + rnd.Int64N(12)},
		})
	}
	return out
}

// promisedBy computes independently the amount of a resource that a layout promises for sure: of each
// group its guarantee, or its queues' sum where that is more, and of each queue its pins where they
// are more.
func promisedBy(l *Layout, c *Capacity, i int, pins Pins) int64 {
	var sum int64
	for _, g := range l.groups {
		var inner int64
		for _, q := range g.queues {
			guaranteed := c.part(q.guaranteed, i)
			if pinned := pins[q.name][c.Devices[i].resource()]; pinned > guaranteed {
				guaranteed = pinned
			}
			inner += guaranteed
		}
		if own := c.part(g.guaranteed, i); own > inner && g.cohort != "" {
			inner = own
		}
		sum += inner
	}
	return sum
}

func nominals(objects []client.Object, r resourceName) (sum, least int64) {
	for _, o := range objects {
		if q := quotaIn(o, r); q != nil {
			n := q.NominalQuota.Value()
			sum += n
			least = min(least, n)
			if q.BorrowingLimit != nil {
				least = min(least, q.BorrowingLimit.Value())
			}
		}
	}
	return sum, least
}

// TestRandomPromises: for random pools, nodes and non-preemptible jobs the objects hold for sure the
// amount that tenants can share, or the promised one if that is more, and nothing is negative. Jobs
// are released only while the promised devices exist, and within their queue's limit. And on the way
// from any pool to any other no more is promised than before or after.
func TestRandomPromises(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(17, 2))
	var old []client.Object
	granted, twoLevels, writes, leftOut := 0, 0, 0, 0
	for round := range 4000 {
		pool := randomPool(rnd)
		c := capacityOf(pool, randomNodes(rnd)...)
		l := NewLayout(pool, []string{"a", "b", "x"}, nil)
		if len(pool.Spec.Queues) > 0 && len(pool.Spec.Quotas) > 0 {
			twoLevels++
		}
		requests := randomRequests(rnd, l)
		let, _, pins := l.Protect(c, nil, requests)
		granted += len(let)
		now := l.Render(c, nil, pins, false).Quotas
		available := c.ForTenants()
		for i := range c.Devices {
			r := c.Devices[i].resource()
			promised := promisedBy(l, c, i, pins)
			sum, least := nominals(now, r)
			if sum != max(available[r], promised) {
				t.Fatalf("round %d: the objects hold %d of %s, %d are there and %d promised", round, sum, r, available[r], promised)
			}
			if least < 0 {
				t.Fatalf("round %d: a quota of %s is %d", round, r, least)
			}
			if before := promisedBy(l, c, i, nil); promised > before && promised > available[r] {
				t.Fatalf("round %d: jobs were let in for %s: %d were promised, now %d, and %d are there", round, r, before, promised, available[r])
			}
		}
		withinLimits(t, round, l, c, pins)
		withinProtected(t, round, l, c, pins)
		withGone, n := pinnedWithGone(t, round, l, c, pins, requests)
		withinLimits(t, round, l, c, withGone)
		leftOut += n
		steps := Order(old, now)
		writes += len(steps)
		walk(t, round, old, now, steps)
		old = now
	}
	if granted < 1000 || twoLevels < 500 || writes < 4000 || leftOut < 500 {
		t.Errorf("%d jobs were let in, %d pools had two levels, %d objects were written, %d times there was no room in two levels: too few to tell",
			granted, twoLevels, writes, leftOut)
	}
}

// pinnedWithGone pins the devices of all requests once more, as if their jobs were gone. It checks
// that no pins are removed, and that the rejected rest has no room: the queue is at its limit, or more
// would exceed the limit of the group.
func pinnedWithGone(t *testing.T, round int, l *Layout, c *Capacity, pins Pins, requests []Request) (out Pins, leftOut int) {
	t.Helper()
	gone := Pins{}
	for _, r := range requests {
		gone.add(l, r.Queue, r.Devices)
	}
	out = l.withGone(c, pins, gone)
	for _, g := range l.groups {
		for i := range c.Devices {
			r := c.Devices[i].resource()
			var sure int64
			for _, q := range g.queues {
				sure += max(c.part(q.guaranteed, i), out[q.name][r])
			}
			for _, q := range g.queues {
				before, wanted, got := pins[q.name][r], pins[q.name][r]+gone[q.name][r], out[q.name][r]
				full := got >= c.part(q.limit, i)
				if g.cohort != "" && got >= c.part(q.guaranteed, i) {
					full = full || sure >= c.part(g.limit, i)
				}
				if got < before || got > wanted || got < wanted && !full {
					t.Fatalf("round %d: %d of %s pinned in %s, %d before, %d with those that are gone, limit %d, of the group %d",
						round, got, r, q.name, before, wanted, c.part(q.limit, i), c.part(g.limit, i))
				}
				if got < wanted && g.cohort != "" {
					leftOut++
				}
			}
		}
	}
	return out, leftOut
}

// withinLimits checks the pins of each queue, and of all queues of each group.
func withinLimits(t *testing.T, round int, l *Layout, c *Capacity, pins Pins) {
	t.Helper()
	for _, g := range l.groups {
		for i := range c.Devices {
			var sum int64
			for _, q := range g.queues {
				n := pins[q.name][c.Devices[i].resource()]
				sum += n
				if n > c.part(q.limit, i) {
					t.Fatalf("round %d: %d pinned in %s, limit %d", round, n, q.name, c.part(q.limit, i))
				}
			}
			if sum > c.part(g.limit, i) {
				t.Fatalf("round %d: %d pinned in %s%s, limit %d", round, sum, g.tenant, g.queue, c.part(g.limit, i))
			}
		}
	}
}

// withinProtected checks that no queue, and no group of queues, has more pinned than it may protect: a
// number of the spec, or the guarantee. A queue of a group without a number has its group's.
func withinProtected(t *testing.T, round int, l *Layout, c *Capacity, pins Pins) {
	t.Helper()
	for _, g := range l.groups {
		for i := range c.Devices {
			var sum int64
			for _, q := range g.queues {
				n, most := pins[q.name][c.Devices[i].resource()], q.protected
				sum += n
				if most == notSaid && g.cohort == "" {
					most = q.guaranteed
				}
				if most != notSaid && n > c.part(min(most, q.limit), i) {
					t.Fatalf("round %d: %d pinned in %s, which may protect %d", round, n, q.name, c.part(most, i))
				}
			}
			most := g.protected
			if most == notSaid {
				most = g.guaranteed
			}
			if sum > c.part(min(most, g.limit), i) {
				t.Fatalf("round %d: %d pinned in %s%s, which may protect %d", round, sum, g.tenant, g.queue, c.part(most, i))
			}
		}
	}
}

// walk carries out steps one by one from old, and ends at now.
func walk(t *testing.T, round int, old, now []client.Object, steps []Write) {
	t.Helper()
	state := slices.Clone(old)
	for n, s := range steps {
		state = slices.DeleteFunc(state, func(o client.Object) bool { return keyOf(o) == keyOf(s.Object) })
		if !s.Delete {
			state = append(state, s.Object)
		}
		for _, r := range []resourceName{nvidia, amd} {
			before, _ := nominals(old, r)
			after, _ := nominals(now, r)
			if between, _ := nominals(state, r); between > max(before, after) {
				t.Fatalf("round %d: after step %d of %d, %s, %d of %s are promised; before %d, after %d",
					round, n, len(steps), keyOf(s.Object), between, r, before, after)
			}
		}
	}
	if len(state) != len(now) {
		t.Fatalf("round %d: %d objects in the end, want %d", round, len(state), len(now))
	}
	for _, want := range now {
		if !slices.ContainsFunc(state, func(o client.Object) bool { return keyOf(o) == keyOf(want) && same(o, want) }) {
			t.Fatalf("round %d: %s is not as it should be in the end", round, keyOf(want))
		}
	}
}
