// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// quota is Kueue's objects and the devices that count.
type quota struct {
	*World
	resources []string // whose devices some profile chooses
}

// maxHolders bounds the Workloads that are named for the quota that they hold.
const maxHolders = 5

// explain explains a job that Kueue does not admit. labels are the job's; wl is nil if Kueue has made no
// Workload yet, and pod then has the requests.
func (k *quota) explain(e *Explanation, labels map[string]string, pod *v1.PodSpec, wl *kueue.Workload) {
	defer func() { e.Next = cmp.Or(e.Next, nextSteps[e.Cause]) }()
	e.Cause = NoQuota
	name, asking := labels[kueue.LabelQueue], wl
	if wl != nil {
		name = wl.Spec.QueueName
	} else {
		asking = &kueue.Workload{Spec: kueue.WorkloadSpec{PodSets: []kueue.PodSet{{Count: 1, Template: v1.PodTemplateSpec{Spec: *pod}}}}}
	}
	asked := slices.DeleteFunc(slices.Clone(k.resources), func(resource string) bool {
		total, _, _ := askedBy(asking, v1.ResourceName(resource))
		return total == 0
	})
	if k.explainQueue(e, name, asked) {
		return
	}
	if wl == nil {
		e.Reason = "Kueue has made no Workload of it that you may read"
		e.Next = "wait a moment; if that stays, see whether Kueue runs, manages jobs of this kind, and whether you may list Workloads"
		return
	}
	queue := k.queueOf(wl)
	if k.explainLimit(e, wl, queue, asked) {
		return
	}
	e.Evidence = append(e.Evidence, fmt.Sprintf("Workload %s/%s in LocalQueue %s, ClusterQueue %s", wl.Namespace, wl.Name, wl.Spec.QueueName, cmp.Or(queue, "unknown")))
	checks := checksOf(wl)
	reserved := meta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadQuotaReserved)
	switch {
	case wl.Spec.Active != nil && !*wl.Spec.Active:
		e.Reason = "the Workload is deactivated: spec.active is false"
	case meta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadQuotaReserved):
		e.Cause, e.Reason = NoPlaceYet, "the job has quota, and waits for an admission check"
	case wl.Status.RequeueState != nil && wl.Status.RequeueState.RequeueAt != nil && wl.Status.RequeueState.RequeueAt.After(k.Now):
		e.Cause = NoPlaceYet
		e.Reason = "the job gave its quota back, and is queued again at " + wl.Status.RequeueState.RequeueAt.UTC().Format(time.RFC3339)
	case reserved != nil && reserved.Message != "":
		e.Reason = "Kueue: " + reserved.Message
	default:
		e.Reason = "Kueue has not looked at the Workload yet"
	}
	e.Evidence = append(e.Evidence, checks...)
	if e.Cause == NoQuota {
		e.Evidence = append(e.Evidence, k.holders(wl, queue)...)
	}
}

// explainQueue explains a job that asks some resources and whose queue is not there. It reports whether
// that is so.
func (k *quota) explainQueue(e *Explanation, name string, asked []string) bool {
	local := find(k.LocalQueues, e.Namespace, name)
	switch {
	case name == "":
		e.Reason = "it has no label " + kueue.LabelQueue
	case local == nil && !k.QueuesKnown:
		return false // they may not be read
	case local == nil:
		e.Reason = fmt.Sprintf("there is no LocalQueue %q in namespace %s, which its label %s names", name, e.Namespace, kueue.LabelQueue)
	case len(k.ClusterQueues) > 0 && find(k.ClusterQueues, "", local.Spec.ClusterQueue) == nil:
		e.Cause, e.Reason = NoQueue, fmt.Sprintf("there is no ClusterQueue %q, which LocalQueue %q names", local.Spec.ClusterQueue, name)
		e.Next = "create that ClusterQueue, or correct the LocalQueue"
		return true
	default:
		return false
	}
	e.Cause, e.Next = NoQueue, k.queueWith(e.Namespace, name, asked)
	return true
}

// queueWith says which LocalQueues of a namespace lead to quota of what a job asks, or how to have one
// where none does; name is that of the queue that is not there. It is empty if nothing is known.
func (k *quota) queueWith(namespace, name string, asked []string) string {
	var there []string
	for i := range k.LocalQueues {
		if q := &k.LocalQueues[i]; q.Namespace == namespace && k.lacks(q.Spec.ClusterQueue, asked) == "" {
			there = append(there, q.Name)
		}
	}
	slices.Sort(there)
	pool, by := k.poolOf(name)
	switch {
	case len(there) > 0:
		return fmt.Sprintf("set the label %s to one of %s", kueue.LabelQueue, strings.Join(there, ", "))
	case pool != "":
		tenant := "the tenant of namespace " + namespace
		if n := find(k.Namespaces, "", namespace); n != nil && n.Labels[poolv1alpha1.LabelTenant] != "" {
			tenant = "tenant " + n.Labels[poolv1alpha1.LabelTenant]
		}
		return fmt.Sprintf("ask an administrator for quota: pool %s gives %s nothing; %s of ComputePool %s gives it some", pool, tenant, by, pool)
	case len(asked) > 0 && k.QueuesKnown:
		return fmt.Sprintf("have a LocalQueue made in namespace %s whose ClusterQueue has %s", namespace, strings.Join(asked, " and "))
	}
	return ""
}

// lacks returns the first of some resources of which a ClusterQueue can have none. It is empty if the
// ClusterQueue can have some of each, or may not be read.
func (k *quota) lacks(queue string, resources []string) string {
	q := find(k.ClusterQueues, "", queue)
	for _, resource := range resources {
		if q == nil {
			if queue == names.DefaultClusterQueue || len(k.ClusterQueues) > 0 {
				return resource
			}
		} else if l := limitOf(q, v1.ResourceName(resource)); !l.listed || l.bounded && l.total == 0 {
			return resource
		}
	}
	return ""
}

// poolOf is the ComputePool whose LocalQueues have such a name, and the fields by which it gives tenants
// quota; empty if no ClusterQueue is of one.
func (k *quota) poolOf(name string) (pool, by string) {
	pool, _, _ = strings.Cut(name, ".")
	for i := range k.ClusterQueues {
		q := &k.ClusterQueues[i]
		if q.Labels[names.LabelManaged] != pool || !strings.HasPrefix(q.Name, pool+".") {
			continue
		}
		if q.Labels[poolv1alpha1.LabelTenant] == "" {
			return pool, "the field tenants of spec.queues"
		}
		return pool, "spec.quotas or spec.defaultQuota"
	}
	return "", ""
}

// explainLimit explains a job that asks more devices than its ClusterQueue can ever have, or some of which
// it has none. It reports whether that is so.
func (k *quota) explainLimit(e *Explanation, wl *kueue.Workload, queue string, asked []string) bool {
	if queue == "" || meta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadQuotaReserved) {
		return false
	}
	if resource := k.lacks(queue, asked); resource != "" {
		e.Cause, e.Reason = OverQuota, fmt.Sprintf("ClusterQueue %s has no %s", queue, resource)
		e.Next = k.queueWith(e.Namespace, "", asked)
		return true
	}
	q := find(k.ClusterQueues, "", queue)
	if q == nil {
		return false
	}
	for _, resource := range asked {
		l := limitOf(q, v1.ResourceName(resource))
		total, largest, one := askedBy(wl, v1.ResourceName(resource))
		asks, most, of := total, l.total, ""
		if total <= l.total { // each PodSet gets its own from one flavor
			asks, most, of = largest, l.flavor, " of one flavor"
		}
		if l.bounded && asks > most {
			e.Cause = OverQuota
			e.Reason = fmt.Sprintf("it asks %d %s%s, and ClusterQueue %s can have at most %d, with all that it may borrow", asks, resource, of, queue, most)
			each := ""
			if greatest := k.greatest(v1.ResourceName(resource)); greatest > 0 && greatest < min(one, most) {
				each = fmt.Sprintf(" and at most %d for each pod", greatest)
			}
			e.Next = fmt.Sprintf("ask for at most %d %s%s%s, or have the quota of ClusterQueue %s raised", most, resource, of, each, queue)
			return true
		}
	}
	return false
}

// greatest is how much of a resource the node has that has most.
func (w *World) greatest(name v1.ResourceName) (most int64) {
	for i := range w.Nodes {
		q := w.Nodes[i].Status.Allocatable[name]
		most = max(most, q.Value())
	}
	return most
}

// limit is how much of a resource a ClusterQueue can have.
type limit struct {
	total, flavor int64 // in all its flavors, and in the one with most
	listed        bool  // in a flavor; else the queue has none
	bounded       bool  // else nothing bounds that
}

func limitOf(q *kueue.ClusterQueue, name v1.ResourceName) (l limit) {
	for _, group := range q.Spec.ResourceGroups {
		for _, f := range group.Flavors {
			for _, r := range f.Resources {
				most := r.NominalQuota.Value()
				switch {
				case r.Name != name:
					continue
				case r.BorrowingLimit != nil:
					most += r.BorrowingLimit.Value()
				case q.Spec.CohortName != "":
					return limit{listed: true} // all that the cohort has
				}
				l = limit{l.total + most, max(l.flavor, most), true, true}
			}
		}
	}
	return l
}

// askedBy is how much of a resource the pods of a Workload ask, as few as may start: all, those of the
// PodSet that asks most, and the one that asks most.
func askedBy(wl *kueue.Workload, name v1.ResourceName) (total, largest, one int64) {
	for i := range wl.Spec.PodSets {
		set := &wl.Spec.PodSets[i]
		pod := &v1.Pod{Spec: set.Template.Spec}
		amount := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})[name]
		if amount.IsZero() { // a template keeps limits without requests, which pods get by default
			amount = resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{})[name]
		}
		count := set.Count
		if set.MinCount != nil {
			count = min(count, *set.MinCount)
		}
		asks := int64(count) * amount.Value()
		total, largest, one = total+asks, max(largest, asks), max(one, amount.Value())
	}
	return total, largest, one
}

// checksOf are what admission checks that are not content say.
func checksOf(wl *kueue.Workload) (out []string) {
	for i := range wl.Status.AdmissionChecks {
		if c := &wl.Status.AdmissionChecks[i]; c.State != kueue.CheckReady && c.Message != "" {
			out = append(out, fmt.Sprintf("admission check %s is %s: %s", c.Name, c.State, c.Message))
		}
	}
	return out
}

// queueOf is the ClusterQueue of a Workload, empty if it is not known.
func (k *quota) queueOf(wl *kueue.Workload) string {
	if q := find(k.LocalQueues, wl.Namespace, wl.Spec.QueueName); q != nil {
		return q.Spec.ClusterQueue
	}
	return ""
}

// holder is a Workload that has quota.
type holder struct {
	name string
	n    int64 // of the resources asked
}

// holders says how much quota the queue has of what the Workload's pods ask, and who has how
// much of it: those of the queue and of its cohort, most first.
func (k *quota) holders(wl *kueue.Workload, queue string) (out []string) {
	same := k.lending(queue)
	if q := find(k.ClusterQueues, "", queue); q != nil {
		out = append(out, quotas(q, k.resources)...)
	}
	var all []holder
	for i := range k.Workloads {
		w := &k.Workloads[i]
		if w.UID == wl.UID || w.Status.Admission == nil || !same[w.Status.Admission.ClusterQueue] || meta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadFinished) {
			continue
		}
		if n := k.held(w); n > 0 {
			all = append(all, holder{fmt.Sprintf("%s/%s of %s", w.Namespace, w.Name, w.Status.Admission.ClusterQueue), n})
		}
	}
	slices.SortFunc(all, func(a, b holder) int { return cmp.Or(cmp.Compare(b.n, a.n), strings.Compare(a.name, b.name)) })
	for _, h := range all[:min(len(all), maxHolders)] {
		out = append(out, fmt.Sprintf("Workload %s holds %d", h.name, h.n))
	}
	if len(all) > maxHolders {
		out = append(out, fmt.Sprintf("and %s more", counted(len(all)-maxHolders, "Workload")))
	}
	return out
}

// lending are the ClusterQueues that lend each other quota: this one and those of its cohort.
func (k *quota) lending(queue string) map[string]bool {
	out, of := map[string]bool{queue: true}, find(k.ClusterQueues, "", queue)
	for i := range k.ClusterQueues {
		if q := &k.ClusterQueues[i]; of != nil && of.Spec.CohortName != "" && q.Spec.CohortName == of.Spec.CohortName {
			out[q.Name] = true
		}
	}
	return out
}

// held is how many devices a Workload has quota of.
func (k *quota) held(w *kueue.Workload) (n int64) {
	for _, a := range w.Status.Admission.PodSetAssignments {
		for _, resource := range k.resources {
			q := a.ResourceUsage[v1.ResourceName(resource)]
			n += q.Value()
		}
	}
	return n
}

// quotas are what a ClusterQueue has of some resources.
func quotas(q *kueue.ClusterQueue, resources []string) (out []string) {
	for _, group := range q.Spec.ResourceGroups {
		for _, f := range group.Flavors {
			for _, r := range f.Resources {
				if !slices.Contains(resources, string(r.Name)) {
					continue
				}
				text := fmt.Sprintf("ClusterQueue %s has %s %s of flavor %s", q.Name, r.NominalQuota.String(), r.Name, f.Name)
				if r.BorrowingLimit != nil {
					text += ", and may borrow " + r.BorrowingLimit.String()
				}
				out = append(out, text)
			}
		}
	}
	return out
}

// workloadOf is the Workload of a namespace that an object owns, or is named; nil if there is none.
// Workloads of other namespaces are there for the quota they hold, and are nobody else's to read.
func (k *quota) workloadOf(namespace string, owner types.UID, name string) *kueue.Workload {
	for i := range k.Workloads {
		w := &k.Workloads[i]
		owned := func() bool {
			return slices.ContainsFunc(w.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == owner })
		}
		if w.Namespace == namespace && (name != "" && w.Name == name || owned()) {
			return w
		}
	}
	return nil
}

// workloadOfKind is the Workload of an object of which only kind and name are known; nil if there is none.
func (k *quota) workloadOfKind(kind, namespace, name string) *kueue.Workload {
	for i := range k.Workloads {
		w := &k.Workloads[i]
		if w.Namespace == namespace && slices.ContainsFunc(w.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == kind && o.Name == name }) {
			return w
		}
	}
	return nil
}
