// SPDX-License-Identifier: Apache-2.0

package computepool

import (
	"maps"
	"regexp"
	"slices"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// equalWeight is the weight of all where weights have no effect.
const equalWeight = 1000

// promise is what somebody is promised, in devices of all the pool's resources together.
type promise struct {
	guaranteed, limit int64
	weight            int64 // in thousandths
	// protected is the most that jobs may hold that must not be preempted; notSaid without a number.
	protected int64
	keep      bool // others get none of what is guaranteed
}

// notSaid is an amount that the spec leaves out.
const notSaid = -1

// queue is a ClusterQueue.
type queue struct {
	promise
	name          string
	tenant, queue string   // whose it is; one of them, or both
	tenants       []string // who may use it; nil: every tenant
	strategy      string
	stop          v1alpha1.StopPolicy
	priority      int64 // added to that of its jobs
	asked         int64 // what the spec guarantees; in two levels guaranteed may be less
	never         bool  // its jobs have nobody evicted
	// leaving: the spec does not have it any more, but jobs in it hold quota. It lets no more in.
	leaving bool
}

// group is what stands directly below the pool's root Cohort: a queue, or a Cohort of queues where
// the pool has both quotas and queues.
type group struct {
	promise
	cohort        string // empty: the group is its one queue
	tenant, queue string
	queues        []queue
}

// Layout is the tree of a pool's quota: who is promised what, and in which queue.
type Layout struct {
	pool   *v1alpha1.ComputePool
	groups []group
}

// Existing is a ClusterQueue of the pool that is there and may not be wanted any more.
type Existing struct{ Name, Tenant, Queue string }

// NewLayout reads a pool's spec. tenants are those that have namespaces; existing are the pool's
// ClusterQueues. Where the pool has both lists there are two levels, of which hierarchy says the
// outer one, and Kueue keeps to these limits:
//
//   - What the outer list says of limits and guarantees holds exactly.
//   - A limit of the inner list bounds each part by itself, not their sum over the outer list: with
//     TenantFirst a queue's maxCapacity bounds each tenant's part of the queue.
//   - A guarantee of the inner list is out of that of the outer one. Where the inner ones are more
//     together, each is reduced in proportion, and rounded down; the condition GuaranteesReduced
//     says so.
//   - Kueue may evict more than it needs to when Cohorts have parents (kueue#10131).
func NewLayout(pool *v1alpha1.ComputePool, tenants []string, existing []Existing) *Layout {
	l := &Layout{pool: pool}
	quotas := l.quotas(tenants)
	switch {
	case len(pool.Spec.Queues) == 0:
		for _, t := range quotas {
			l.groups = append(l.groups, single(l.tenantQueue(t)))
		}
	case !twoLevels(pool):
		for i := range pool.Spec.Queues {
			l.groups = append(l.groups, single(l.poolQueue(&pool.Spec.Queues[i])))
		}
	case pool.Spec.Hierarchy == v1alpha1.QueueFirst:
		l.queueFirst(quotas)
	default:
		l.tenantFirst(quotas)
	}
	l.keepLeaving(existing)
	return l
}

// twoLevels reports whether a pool shares its devices by tenants and by queues.
func twoLevels(pool *v1alpha1.ComputePool) bool {
	return len(pool.Spec.Queues) > 0 && (len(pool.Spec.Quotas) > 0 || pool.Spec.DefaultQuota != nil)
}

// tenantShare is a tenant with what it is promised.
type tenantShare struct {
	promise
	name string
}

// tenantName is the pattern of quotas' field tenant: a namespace's label may have other values,
// of which no name of an object can be made.
var tenantName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)

// quotas are the shares of all tenants: those that spec lists, and the others with namespaces.
func (l *Layout) quotas(tenants []string) []tenantShare {
	spec := &l.pool.Spec
	listed := map[string]bool{}
	out := make([]tenantShare, 0, len(spec.Quotas))
	for i := range spec.Quotas {
		q := &spec.Quotas[i]
		listed[q.Tenant] = true
		out = append(out, tenantShare{name: q.Tenant, promise: l.promise(q.Guaranteed, q.Limit, q.ProtectedLimit, q.Weight)})
	}
	if spec.DefaultQuota == nil {
		return out
	}
	for _, t := range slices.Compact(slices.Sorted(slices.Values(tenants))) {
		if !listed[t] && tenantName.MatchString(t) {
			out = append(out, l.unlisted(t))
		}
	}
	return out
}

// unlisted is the share of a tenant that quotas does not list.
func (l *Layout) unlisted(tenant string) tenantShare {
	d := l.pool.Spec.DefaultQuota
	return tenantShare{name: tenant, promise: l.promise(0, d.Limit, d.ProtectedLimit, d.Weight)}
}

// promise fills in what spec leaves out. Without fair sharing all weights are equal: Kueue always
// shares what is borrowed by weight, and has no way to let the first one keep it.
func (l *Layout) promise(guaranteed int32, limit, protected *int32, weight v1alpha1.Weight) promise {
	p := promise{guaranteed: int64(guaranteed), limit: int64(l.pool.Spec.Capacity.Total), protected: notSaid, weight: weight.Thousandths()}
	if limit != nil {
		p.limit = int64(*limit)
	}
	if protected != nil {
		p.protected = int64(*protected)
	}
	if !l.sharesByWeight() {
		p.weight = equalWeight
	}
	return p
}

// sharesByWeight is false where all weights are one.
func (l *Layout) sharesByWeight() bool {
	fs := l.pool.Spec.FairShare
	return fs == nil || fs.Enabled == nil || *fs.Enabled
}

func (l *Layout) tenantQueue(t tenantShare) queue {
	return queue{
		promise: t.promise, name: names.ClusterQueue(l.pool.Name, t.name, ""), tenant: t.name, tenants: []string{t.name},
		strategy: kueue.BestEffortFIFO, stop: l.stop(v1alpha1.StopNone),
	}
}

func (l *Layout) poolQueue(q *v1alpha1.PoolQueue) queue {
	out := queue{
		promise: l.promise(q.GuaranteedCapacity, q.MaxCapacity, q.ProtectedCapacity, q.Weight), name: names.ClusterQueue(l.pool.Name, "", q.Name),
		queue: q.Name, tenants: q.Tenants, priority: int64(q.Priority),
		strategy: kueue.BestEffortFIFO, stop: l.stop(q.StopPolicy), never: q.PreemptionPolicy == v1alpha1.PreemptNever,
	}
	switch q.Policy {
	case v1alpha1.QueueFIFO:
		out.strategy, out.weight = kueue.StrictFIFO, equalWeight
	case v1alpha1.QueuePriority:
		out.weight = equalWeight
	case v1alpha1.QueueCapacity:
		// Queues that nothing is guaranteed to borrow too: a weight of 0 would be a last rank in Kueue.
		out.weight = equalWeight * max(1, out.guaranteed)
	case v1alpha1.QueueFairShare, "":
	}
	if !l.sharesByWeight() {
		out.weight = equalWeight
	}
	out.keep = q.Reclaimable != nil && !*q.Reclaimable
	return out
}

// single is a group of one queue, which has all that the group has.
func single(q queue) group {
	return group{promise: q.promise, tenant: q.tenant, queue: q.queue, queues: []queue{q}}
}

func (l *Layout) tenantFirst(quotas []tenantShare) {
	for _, t := range quotas {
		g := group{promise: t.promise, cohort: names.ClusterQueue(l.pool.Name, t.name, ""), tenant: t.name}
		for i := range l.pool.Spec.Queues {
			if q := l.poolQueue(&l.pool.Spec.Queues[i]); mayUse(q.tenants, t.name) {
				g.queues = append(g.queues, l.inner(q, t.name, q.promise, t.promise))
			}
		}
		l.groups = append(l.groups, withinGuarantee(g))
	}
}

func (l *Layout) queueFirst(quotas []tenantShare) {
	for i := range l.pool.Spec.Queues {
		q := l.poolQueue(&l.pool.Spec.Queues[i])
		g := group{promise: q.promise, cohort: q.name, queue: q.queue}
		for _, t := range quotas {
			if mayUse(q.tenants, t.name) {
				g.queues = append(g.queues, l.inner(q, t.name, t.promise, q.promise))
			}
		}
		l.groups = append(l.groups, withinGuarantee(g))
	}
}

// inner is a tenant's part of a queue.
func (l *Layout) inner(q queue, tenant string, p, outer promise) queue {
	q.promise = p
	q.limit = min(p.limit, outer.limit)
	q.name, q.tenant, q.tenants = names.ClusterQueue(l.pool.Name, tenant, q.queue), tenant, []string{tenant}
	return q
}

// withinGuarantee reduces the guarantees of a group's queues to that of the group.
func withinGuarantee(g group) group {
	var sum int64
	for i := range g.queues {
		sum += g.queues[i].guaranteed
	}
	for i := range g.queues {
		q := &g.queues[i]
		q.asked = q.guaranteed
		if sum > g.guaranteed {
			q.guaranteed = q.guaranteed * g.guaranteed / sum
		}
		q.guaranteed = min(q.guaranteed, q.limit)
	}
	return g
}

// keepLeaving adds queues that are there and that the spec does not have.
func (l *Layout) keepLeaving(existing []Existing) {
	wanted := map[string]bool{}
	for q := range l.all() {
		wanted[q.name] = true
	}
	for _, e := range existing {
		if wanted[e.Name] {
			continue
		}
		stop := v1alpha1.StopHold
		if l.pool.Spec.StopPolicy == v1alpha1.StopHoldAndDrain {
			stop = v1alpha1.StopHoldAndDrain
		}
		l.groups = append(l.groups, single(queue{
			promise: promise{weight: equalWeight}, name: e.Name, tenant: e.Tenant, queue: e.Queue, tenants: []string{},
			strategy: kueue.BestEffortFIFO, stop: stop, leaving: true,
		}))
	}
}

// stop is the stricter one of a queue's stop policy and the pool's. A pool that is being deleted
// lets no more jobs in.
func (l *Layout) stop(of v1alpha1.StopPolicy) v1alpha1.StopPolicy {
	strictness := map[v1alpha1.StopPolicy]int{v1alpha1.StopHold: 1, v1alpha1.StopHoldAndDrain: 2}
	out := v1alpha1.StopNone
	if l.pool.DeletionTimestamp != nil {
		out = v1alpha1.StopHold
	}
	for _, p := range []v1alpha1.StopPolicy{of, l.pool.Spec.StopPolicy} {
		if strictness[p] > strictness[out] {
			out = p
		}
	}
	return out
}

// mayUse says whether a tenant is among those of a queue.
func mayUse(tenants []string, tenant string) bool {
	return len(tenants) == 0 || slices.Contains(tenants, tenant)
}

// all are the queues, in order.
func (l *Layout) all() func(func(*queue) bool) {
	return func(yield func(*queue) bool) {
		for i := range l.groups {
			for j := range l.groups[i].queues {
				if !yield(&l.groups[i].queues[j]) {
					return
				}
			}
		}
	}
}

// find is the queue of that name; nil if the layout has none.
func (l *Layout) find(name string) *queue {
	for q := range l.all() {
		if q.name == name {
			return q
		}
	}
	return nil
}

// jobPriority is that of a job in the queue, by its own. In a queue by arrival all jobs have one.
func (q *queue) jobPriority(own int64) int64 {
	if q.strategy == kueue.StrictFIFO {
		return q.priority
	}
	return q.priority + own
}

// Pins are the devices that jobs hold that must not be preempted, by ClusterQueue.
type Pins map[string]Amounts

func (p Pins) of(q *queue, resource resourceName) int64 { return p[q.name][resource] }

// clone copies what with then changes.
func (p Pins) clone() Pins {
	out := maps.Clone(p)
	if out == nil {
		out = Pins{}
	}
	return out
}

// with adds devices to a queue. The Amounts that were there before are left as they are.
func (p Pins) with(queue string, devices Amounts) {
	after := maps.Clone(p[queue])
	if after == nil {
		after = Amounts{}
	}
	for r, n := range devices {
		after[r] += n
	}
	p[queue] = after
}
