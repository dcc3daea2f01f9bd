// SPDX-License-Identifier: Apache-2.0

package computepool

import (
	"cmp"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	topology "github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// Cluster is the cluster's objects from which the plans of pools are made.
type Cluster struct {
	Pools      []*v1alpha1.ComputePool
	Nodes      []*v1.Node
	Topologies map[string]*topology.NodeGPUTopology // by node
	Pods       []*v1.Pod
	Tenants    map[string]string // by namespace
	Open       map[string]string // those of Tenants that are not being deleted
	Workloads  []*kueue.Workload
	Priority   func(*batchv1.Job) int64
}

// Objects is the existing Kueue objects of one pool, and the non-preemptible jobs of all pools.
type Objects struct {
	Flavors     []*kueue.ResourceFlavor
	Quotas      []client.Object // Cohorts and ClusterQueues
	LocalQueues []*kueue.LocalQueue
	// OtherLocalQueues are all LocalQueues that are not the pool's. A tenant may create one under the
	// name of the pool's queue; then only that tenant's jobs do not get in.
	OtherLocalQueues []*kueue.LocalQueue
	Jobs             []*batchv1.Job
}

// Plan is the writes that a pool needs.
type Plan struct {
	Flavor  []Write // empty if the flavor is unchanged
	Quotas  []Write // in this order
	Local   []Write
	Last    []Write // deleted once no queue uses them any more
	Tell    []Told
	Release []Request
	Drained bool // the pool is being deleted, and none of its objects exists any more

	observed *Observed
	metrics  *poolMetrics
}

// Told is a protected job with the reason to write on it why it waits.
type Told struct {
	Job *batchv1.Job
	Why Why
}

// Idle reports whether the plan has no writes.
func (p *Plan) Idle() bool {
	return len(p.Flavor)+len(p.Quotas)+len(p.Local)+len(p.Last)+len(p.Tell)+len(p.Release) == 0
}

// PlanFor compares a pool's objects with those rendered from its spec and the cluster.
func PlanFor(pool *v1alpha1.ComputePool, in *Cluster, have *Objects, placement bool) *Plan {
	members := MembersOf(pool, in.Pools, in.Nodes)
	capacity := CapacityOf(pool, members, in.Topologies, in.Pods, in.Tenants)
	queues := have.queues()
	removable := removableOf(pool, in, queues)
	layout := NewLayout(pool, tenantsOf(in.Open), existing(queues, removable))
	protected := ProtectedOf(layout, in.Open, have.Jobs, in.Workloads, in.Priority)
	pins := layout.withGone(capacity, protected.Pins, protected.Gone)
	granted, refused, pins := layout.Protect(capacity, pins, protected.Requests)
	rendered := layout.Render(capacity, in.Open, pins, placement)
	p := &Plan{
		observed: &Observed{
			Capacity: capacity, Layout: layout, Pins: pins, Short: rendered.Short, Queues: queues,
			Gated: gatedBy(protected.Requests, granted),
		},
		metrics: &poolMetrics{usage: usageOf(capacity), oldest: oldestPending(layout, in.Open, in.Workloads)},
	}
	if pool.DeletionTimestamp != nil && len(removable) == len(queues) {
		p.remove(have)
		return p
	}
	p.Quotas = Order(have.Quotas, rendered.Quotas)
	if pool.DeletionTimestamp == nil {
		p.Flavor = flavorWrites(have.Flavors, rendered.Flavor)
	} else { // a pool that is being deleted gets no new objects
		p.Quotas = slices.DeleteFunc(p.Quotas, func(w Write) bool { return w.Over == nil && !w.Delete })
	}
	wanted, others := withoutOthers(rendered.LocalQueues, have.OtherLocalQueues)
	p.observed.Others = others
	p.Local = localWrites(have.LocalQueues, wanted)
	p.Release = p.ready(granted)
	p.Tell = p.tell(have.Jobs, granted, refused)
	return p
}

// tell returns the waiting jobs whose annotation is missing or outdated. Jobs released in this plan are
// left out.
func (p *Plan) tell(jobs []*batchv1.Job, granted []Request, refused []Refusal) []Told {
	why := map[string]Why{}
	for i := range granted {
		why[granted[i].Job] = whySoon()
	}
	for i := range refused {
		why[refused[i].Job] = refused[i].Why
	}
	for i := range p.Release {
		delete(why, p.Release[i].Job)
	}
	var out []Told
	for _, job := range jobs {
		if w, waits := why[job.Namespace+"/"+job.Name]; waits && job.Annotations[names.AnnotationProtection] != w.String() {
			out = append(out, Told{Job: job, Why: w})
		}
	}
	return out
}

// remove plans the deletion of all objects of a pool that no job uses any more. Kueue keeps a flavor
// while a ClusterQueue names it.
func (p *Plan) remove(have *Objects) {
	for _, q := range have.LocalQueues {
		p.Local = append(p.Local, removal(q)...)
	}
	for _, o := range have.Quotas {
		p.Quotas = append(p.Quotas, removal(o)...)
	}
	if len(have.Quotas) == 0 {
		for _, f := range have.Flavors {
			p.Last = append(p.Last, removal(f)...)
		}
	}
	p.observed.Going = have.going()
	p.Drained = len(have.LocalQueues)+len(have.Quotas)+len(have.Flavors) == 0
}

// going lists the objects that are being deleted and still exist, with their finalizers.
func (o *Objects) going() []string {
	var out []string
	note := func(object client.Object) {
		if object.GetDeletionTimestamp() != nil {
			out = append(out, named(object)+" (kept by "+strings.Join(object.GetFinalizers(), ", ")+")")
		}
	}
	for _, q := range o.LocalQueues {
		note(q)
	}
	for _, q := range o.Quotas {
		note(q)
	}
	for _, f := range o.Flavors {
		note(f)
	}
	return out
}

// removal returns the deletion of an object, or nothing if it is being deleted already.
func removal(o client.Object) []Write {
	if o.GetDeletionTimestamp() != nil {
		return nil
	}
	return []Write{{Object: o, Delete: true}}
}

// ready returns the granted requests whose ClusterQueue Kueue has seen with the quota that was pinned
// for them. Released earlier, a job would find that quota lent out, and take another job's place.
func (p *Plan) ready(granted []Request) []Request {
	written := map[string]bool{}
	for _, w := range p.Quotas {
		if _, ok := w.Object.(*kueue.ClusterQueue); ok {
			written[w.Object.GetName()] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(granted), func(r Request) bool {
		cq := p.observed.Queues[r.Queue]
		return cq == nil || written[r.Queue] || !seen(cq)
	})
}

// seen reports whether Kueue has observed the current generation of a queue.
func seen(cq *kueue.ClusterQueue) bool {
	active := meta.FindStatusCondition(cq.Status.Conditions, kueue.ClusterQueueActive)
	return active != nil && active.ObservedGeneration == cq.Generation
}

// removableOf returns the queues that can be deleted: the spec does not have them, or is itself being
// deleted, Kueue has seen that they are stopped, and no workload holds quota in them.
func removableOf(pool *v1alpha1.ComputePool, in *Cluster, queues map[string]*kueue.ClusterQueue) map[string]bool {
	wanted := map[string]bool{}
	if pool.DeletionTimestamp == nil {
		for q := range NewLayout(pool, tenantsOf(in.Open), nil).all() {
			wanted[q.name] = true
		}
	}
	out := map[string]bool{}
	for name, cq := range queues {
		stopped := cq.Spec.StopPolicy == string(v1alpha1.StopHold) || cq.Spec.StopPolicy == string(v1alpha1.StopHoldAndDrain)
		if !wanted[name] && stopped && seen(cq) && cq.Status.ReservingWorkloads == 0 {
			out[name] = true
		}
	}
	return out
}

// existing returns the pool's ClusterQueues that are not removable yet, by name.
func existing(queues map[string]*kueue.ClusterQueue, removable map[string]bool) []Existing {
	var out []Existing
	for name, cq := range queues {
		if !removable[name] {
			out = append(out, Existing{Name: name, Tenant: cq.Labels[v1alpha1.LabelTenant], Queue: cq.Labels[names.LabelQueue]})
		}
	}
	slices.SortFunc(out, func(a, b Existing) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

func (o *Objects) queues() map[string]*kueue.ClusterQueue {
	out := map[string]*kueue.ClusterQueue{}
	for _, q := range o.Quotas {
		if cq, ok := q.(*kueue.ClusterQueue); ok {
			out[cq.Name] = cq
		}
	}
	return out
}

// withoutOthers splits the wanted LocalQueues: left can be written, taken are the names that LocalQueues
// of other owners have already.
func withoutOthers(wanted, others []*kueue.LocalQueue) (left []*kueue.LocalQueue, taken []string) {
	names := map[string]bool{}
	for _, q := range others {
		names[keyOf(q)] = true
	}
	for _, q := range wanted {
		if names[keyOf(q)] {
			taken = append(taken, named(q))
		} else {
			left = append(left, q)
		}
	}
	return left, taken
}

// flavorWrites returns the write that brings the pool's flavor to the wanted state, if one is needed.
func flavorWrites(have []*kueue.ResourceFlavor, want *kueue.ResourceFlavor) []Write {
	i := slices.IndexFunc(have, func(f *kueue.ResourceFlavor) bool { return f.Name == want.Name })
	switch {
	case i < 0:
		return []Write{{Object: want}}
	case same(have[i], want):
		return nil
	}
	return []Write{{Object: want, Over: have[i]}}
}

// localWrites returns the writes that bring the LocalQueues to the wanted state. The ClusterQueue of a
// LocalQueue is immutable: such a LocalQueue is deleted first, and created again in a later round.
func localWrites(have, want []*kueue.LocalQueue) []Write {
	there := map[string]*kueue.LocalQueue{}
	for _, q := range have {
		there[keyOf(q)] = q
	}
	var out []Write
	for _, q := range want {
		old, ok := there[keyOf(q)]
		delete(there, keyOf(q))
		switch {
		case ok && (old.DeletionTimestamp != nil || same(old, q)):
		case ok && old.Spec.ClusterQueue != q.Spec.ClusterQueue:
			out = append(out, Write{Object: old, Delete: true})
		case ok:
			out = append(out, Write{Object: q, Over: old})
		default:
			out = append(out, Write{Object: q})
		}
	}
	for _, q := range have {
		if _, unwanted := there[keyOf(q)]; unwanted {
			out = append(out, removal(q)...)
		}
	}
	return out
}

func tenantsOf(namespaces map[string]string) []string {
	var out []string
	for _, t := range namespaces {
		out = append(out, t)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// gatedBy counts the requests that were not granted, by queue.
func gatedBy(requests, granted []Request) map[string]int32 {
	out := map[string]int32{}
	for _, r := range requests {
		out[r.Queue]++
	}
	for _, r := range granted {
		out[r.Queue]--
	}
	return out
}
