// SPDX-License-Identifier: Apache-2.0

package placementcheck

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/resource"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	"github.com/nvtopo/nvtopo/pkg/pools/units"
)

// amounts are amounts of the resources that quota is set for.
type amounts map[v1.ResourceName]int64

func (a amounts) add(b amounts) {
	for r, n := range b {
		a[r] += n
	}
}

// limit is the most that the jobs of some ClusterQueues may hold together.
type limit struct {
	of     string // the object that sets it
	queues []string
	most   amounts
}

// holdings is the devices that the jobs of each ClusterQueue hold: the quota of those that were told to
// start, and the devices of pods beyond their quota. Kueue counts only the former: quota is free as soon
// as pods begin to end, or when their job is deleted. Without the latter a tenant that creates and
// deletes jobs whose pods take long to end could hold any amount.
type holdings struct {
	limits  []limit
	covered map[string][]v1.ResourceName // by ClusterQueue
	all     map[string]amounts           // by ClusterQueue
	beyond  map[string]amounts           // the part of all that is held without quota, by ClusterQueue
}

// newHoldings computes the holdings of a World. told are the Workloads that were told to start.
func newHoldings(w *World, told []*kueue.Workload, podsOf map[types.UID][]*v1.Pod) *holdings {
	h := &holdings{limits: limitsOf(w), covered: map[string][]v1.ResourceName{}, all: map[string]amounts{}, beyond: map[string]amounts{}}
	for i := range w.ClusterQueues {
		cq := &w.ClusterQueues[i]
		for _, g := range cq.Spec.ResourceGroups {
			h.covered[cq.Name] = append(h.covered[cq.Name], g.CoveredResources...)
		}
	}
	if len(h.limits) == 0 {
		return h
	}
	places := newPlaces(w)
	counted := map[types.UID]bool{}
	for _, workload := range told {
		queue := workload.Status.Admission.ClusterQueue
		live, ending := amounts{}, amounts{}
		for _, owner := range workload.OwnerReferences {
			for _, p := range podsOf[owner.UID] {
				if counted[p.UID] || !places.holds(p) {
					continue
				}
				counted[p.UID] = true
				if p.DeletionTimestamp != nil {
					ending.add(h.devicesOf(queue, p))
				} else {
					live.add(h.devicesOf(queue, p))
				}
			}
		}
		h.count(queue, quotaOf(workload), live, ending)
	}
	for i := range w.Pods {
		p := &w.Pods[i]
		if queue := places.queueOf(p); queue != "" && !counted[p.UID] && places.holds(p) {
			h.count(queue, nil, nil, h.devicesOf(queue, p))
		}
	}
	return h
}

// count adds a job's quota, and the devices that its pods hold beyond it: those of live pods in excess
// of the quota, and all of ending pods.
func (h *holdings) count(queue string, quota, live, ending amounts) {
	if h.all[queue] == nil {
		h.all[queue], h.beyond[queue] = amounts{}, amounts{}
	}
	more := amounts{}
	more.add(ending)
	for r, n := range live {
		if n > quota[r] {
			more[r] += n - quota[r]
		}
	}
	h.all[queue].add(quota)
	h.all[queue].add(more)
	h.beyond[queue].add(more)
}

// over returns why a Workload with quota must not start yet, or "": with it more would be held than a
// limit allows. Kueue gives no quota beyond a limit, so the excess is held by ending pods, or by a job
// that Kueue no longer counts and that the cache still shows.
func (h *holdings) over(w *kueue.Workload) string {
	queue, asks := w.Status.Admission.ClusterQueue, quotaOf(w)
	for i := range h.limits {
		l := &h.limits[i]
		if !slices.Contains(l.queues, queue) {
			continue
		}
		for _, r := range slices.Sorted(maps.Keys(asks)) {
			most, bounded := l.most[r]
			var held, beyond int64
			for _, q := range l.queues {
				held, beyond = held+h.all[q][r], beyond+h.beyond[q][r]
			}
			if bounded && held+asks[r] > most {
				return fmt.Sprintf("the limit of %s is %d %s, and %d are held, %d of them by pods that are ending or have no quota: this job's %d wait until these are gone",
					l.of, most, r, held, beyond, asks[r])
			}
		}
	}
	return ""
}

// limitsOf returns the limits of ClusterQueues, and of Cohorts that are not the root of a pool.
func limitsOf(w *World) []limit {
	var out []limit
	queues, nominal := map[string][]string{}, map[string]amounts{} // by Cohort
	for i := range w.ClusterQueues {
		cq := &w.ClusterQueues[i]
		l := limit{of: "ClusterQueue " + cq.Name, queues: []string{cq.Name}, most: amounts{}}
		own := nominal[cq.Spec.CohortName]
		if own == nil {
			own = amounts{}
			nominal[cq.Spec.CohortName] = own
		}
		queues[cq.Spec.CohortName] = append(queues[cq.Spec.CohortName], cq.Name)
		eachQuota(cq.Spec.ResourceGroups, func(q *kueue.ResourceQuota) {
			own[q.Name] += q.NominalQuota.Value()
			if cq.Spec.CohortName == "" || q.BorrowingLimit != nil { // otherwise it may borrow without a limit
				l.most[q.Name] += q.NominalQuota.Value() + borrowing(q)
			}
		})
		if len(l.most) > 0 {
			out = append(out, l)
		}
	}
	for i := range w.Cohorts {
		c := &w.Cohorts[i]
		l := limit{of: "Cohort " + c.Name, queues: queues[c.Name], most: amounts{}}
		eachQuota(c.Spec.ResourceGroups, func(q *kueue.ResourceQuota) {
			if c.Spec.ParentName != "" && q.BorrowingLimit != nil {
				l.most[q.Name] += nominal[c.Name][q.Name] + q.NominalQuota.Value() + borrowing(q)
			}
		})
		if len(l.most) > 0 {
			out = append(out, l)
		}
	}
	return out
}

func eachQuota(groups []kueue.ResourceGroup, visit func(*kueue.ResourceQuota)) {
	for _, g := range groups {
		for i := range g.Flavors {
			for j := range g.Flavors[i].Resources {
				visit(&g.Flavors[i].Resources[j])
			}
		}
	}
}

func borrowing(q *kueue.ResourceQuota) int64 {
	if q.BorrowingLimit == nil {
		return 0
	}
	return q.BorrowingLimit.Value()
}

// quotaOf returns the quota of a Workload, without its pods that have succeeded.
func quotaOf(w *kueue.Workload) amounts {
	out := amounts{}
	for i := range w.Status.Admission.PodSetAssignments {
		a := &w.Status.Admission.PodSetAssignments[i]
		at := slices.IndexFunc(w.Spec.PodSets, func(ps kueue.PodSet) bool { return ps.Name == a.Name })
		if at < 0 || a.Count == nil || *a.Count == 0 {
			continue
		}
		for r, q := range a.ResourceUsage {
			out[r] += q.Value() / int64(*a.Count) * int64(countOf(w, &w.Spec.PodSets[at]))
		}
	}
	return out
}

// devicesOf returns the amounts of a queue's resources that a pod holds.
func (h *holdings) devicesOf(queue string, p *v1.Pod) amounts {
	out := amounts{}
	requests := resource.PodRequests(p, resource.PodResourcesOptions{})
	for _, r := range h.covered[queue] {
		unit := units.Unit{Resource: string(r)}
		for name, q := range requests {
			if n := unit.Count(string(name), q.Value()); n > 0 {
				out[r] += n
			}
		}
	}
	return out
}

// places is the ready nodes, and the mapping of pods without a Workload to ClusterQueues.
type places struct {
	ready   map[string]bool     // nodes
	flavors map[string][]string // flavors whose node labels the node has, by node
	all     []kueue.ResourceFlavor
	queues  map[string]string // namespace/LocalQueue -> ClusterQueue
	tenants map[string]bool   // namespaces with LocalQueues
}

func newPlaces(w *World) *places {
	p := &places{ready: map[string]bool{}, flavors: map[string][]string{}, all: w.Flavors, queues: map[string]string{}, tenants: map[string]bool{}}
	for i := range w.Nodes {
		n := &w.Nodes[i]
		p.ready[n.Name], p.flavors[n.Name] = isReady(n), p.flavorsOf(n.Labels)
	}
	for i := range w.LocalQueues {
		q := &w.LocalQueues[i]
		p.queues[q.Namespace+"/"+q.Name], p.tenants[q.Namespace] = q.Spec.ClusterQueue, true
	}
	return p
}

func (p *places) flavorsOf(labels map[string]string) []string {
	var out []string
	for i := range p.all {
		f := &p.all[i]
		fits := len(f.Spec.NodeLabels) > 0
		for k, v := range f.Spec.NodeLabels {
			fits = fits && labels[k] == v
		}
		if fits {
			out = append(out, f.Name)
		}
	}
	return out
}

// holds reports whether a pod has devices, or is about to: it has started, and has not ended. Pods on a
// node that is not ready are left out: whether they still run is unknown, and the pool has lost those
// devices already.
func (p *places) holds(pod *v1.Pod) bool {
	ended := pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
	return !ended && len(pod.Spec.SchedulingGates) == 0 && (pod.Spec.NodeName == "" || p.ready[pod.Spec.NodeName])
}

// queueOf returns the ClusterQueue of a pod: its namespace's queue in the pool of its node, where a
// tenant has one queue, or else the one in Kueue's label on the pod. It is empty for a pod of no tenant.
func (p *places) queueOf(pod *v1.Pod) string {
	if !p.tenants[pod.Namespace] {
		return ""
	}
	flavors, bound := p.flavors[pod.Spec.NodeName]
	if !bound {
		flavors = p.flavorsOf(pod.Spec.NodeSelector)
	}
	for _, f := range flavors { // the flavor, the pool and the queue of a tenant have one name
		if queue := p.queues[pod.Namespace+"/"+f]; queue != "" {
			return queue
		}
	}
	return p.queues[pod.Namespace+"/"+pod.Labels[kueue.LabelLocalQueue]]
}
