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

// equalWeight is the weight of all queues where weights have no effect.
const equalWeight = 1000

// promise is the quota of one tenant or queue, in devices of all the pool's resources together.
type promise struct {
	guaranteed, limit int64
	weight            int64 // in thousandths
	// protected is the most that non-preemptible jobs may hold; notSaid without a number in the spec.
	protected int64
	keep      bool // the guaranteed devices are not lent to others
}

// notSaid marks an amount that the spec leaves out.
const notSaid = -1

// queue is a ClusterQueue of the layout.
type queue struct {
	promise
	name          string
	tenant, queue string   // owner: one of them, or both
	tenants       []string // tenants that may use it; nil: every tenant
	strategy      string
	stop          v1alpha1.StopPolicy
	priority      int64 // added to the priority of its jobs
	asked         int64 // the spec's guarantee; in two levels guaranteed may be less
	never         bool  // its jobs never preempt others
	// leaving: the spec no longer has the queue, but jobs in it hold quota. It admits no more jobs.
	leaving bool
}

// group is a child of the pool's root Cohort: a queue, or a Cohort of queues where the pool has both
// quotas and queues.
type group struct {
	promise
	cohort        string // empty: the group is its one queue
	tenant, queue string
	queues        []queue
}

// Layout is the tree of a pool's quota: the promises to tenants and queues, and the ClusterQueue of
// each.
type Layout struct {
	pool   *v1alpha1.ComputePool
	groups []group
}

// Existing is an existing ClusterQueue of the pool, which the spec may no longer have.
type Existing struct{ Name, Tenant, Queue string }

// NewLayout builds the layout of a pool's spec. tenants are those that have namespaces; existing are the
// pool's ClusterQueues. Where the spec has both quotas and queues, there are two levels; hierarchy
// selects the outer one, and Kueue keeps to these limits:
//
//   - Limits and guarantees of the outer list hold exactly.
//   - A limit of the inner list bounds each part by itself, not their sum over the outer list: with
//     TenantFirst a queue's maxCapacity bounds each tenant's part of the queue.
//   - A guarantee of the inner list is taken out of that of the outer one. Where the inner ones add
//     up to more, each is reduced in proportion, and rounded down; the condition GuaranteesReduced
//     reports this.
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

// tenantShare is a tenant with its promise.
type tenantShare struct {
	promise
	name string
}

// tenantName is the pattern of the field quotas[].tenant. A namespace's tenant label may have values
// that do not match; they cannot be part of an object's name.
var tenantName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)

// quotas returns the shares of all tenants: those listed in the spec, and with defaultQuota the others
// that have namespaces.
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

// unlisted is the share of a tenant that spec.quotas does not list.
func (l *Layout) unlisted(tenant string) tenantShare {
	d := l.pool.Spec.DefaultQuota
	return tenantShare{name: tenant, promise: l.promise(0, d.Limit, d.ProtectedLimit, d.Weight)}
}

// promise fills in the defaults of a quota. Without fair sharing all weights are equal: Kueue always
// shares borrowed quota by weight, and cannot let the first borrower keep it.
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

// sharesByWeight is false where the spec turns fair sharing off, so that all weights are equal.
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
		// Queues without a guarantee borrow too: a weight of 0 would rank them last in Kueue.
		out.weight = equalWeight * max(1, out.guaranteed)
	case v1alpha1.QueueFairShare, "":
	}
	if !l.sharesByWeight() {
		out.weight = equalWeight
	}
	out.keep = q.Reclaimable != nil && !*q.Reclaimable
	return out
}

// single returns a group of one queue, with the promise of the queue.
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

// inner returns the part of a queue that belongs to one tenant.
func (l *Layout) inner(q queue, tenant string, p, outer promise) queue {
	q.promise = p
	q.limit = min(p.limit, outer.limit)
	q.name, q.tenant, q.tenants = names.ClusterQueue(l.pool.Name, tenant, q.queue), tenant, []string{tenant}
	return q
}

// withinGuarantee reduces the guarantees of a group's queues in proportion, so that their sum fits into
// the group's.
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

// keepLeaving adds the existing queues that the spec no longer has, stopped and without a promise.
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

// stop returns the stricter one of a queue's stop policy and the pool's. A pool that is being deleted
// admits no more jobs.
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

// mayUse reports whether a tenant may use a queue with that list of tenants; an empty list allows all.
func mayUse(tenants []string, tenant string) bool {
	return len(tenants) == 0 || slices.Contains(tenants, tenant)
}

// all iterates over the queues of all groups, in order.
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

// find returns the queue of that name; nil if the layout has none.
func (l *Layout) find(name string) *queue {
	for q := range l.all() {
		if q.name == name {
			return q
		}
	}
	return nil
}

// jobPriority is the priority of a job within the queue. own is the job's own priority; a StrictFIFO
// queue ignores it.
func (q *queue) jobPriority(own int64) int64 {
	if q.strategy == kueue.StrictFIFO {
		return q.priority
	}
	return q.priority + own
}

// Pins is the devices set aside for non-preemptible jobs, by ClusterQueue.
type Pins map[string]Amounts

func (p Pins) of(q *queue, resource resourceName) int64 { return p[q.name][resource] }

// clone returns a copy that with may change.
func (p Pins) clone() Pins {
	out := maps.Clone(p)
	if out == nil {
		out = Pins{}
	}
	return out
}

// with adds devices to a queue's pins. It does not modify the Amounts that were stored before.
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
