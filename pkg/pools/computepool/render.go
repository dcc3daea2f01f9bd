// SPDX-License-Identifier: Apache-2.0

package computepool

import (
	"cmp"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/membership"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
	"github.com/nvtopo/nvtopo/pkg/pools/quota"
)

// Rendered is the wanted Kueue objects of a pool.
type Rendered struct {
	Flavor *kueue.ResourceFlavor
	// Quotas are the Cohorts, the root first, and the ClusterQueues. Order returns the order in which to
	// write them.
	Quotas []client.Object
	// LocalQueues are the queues under the names that the jobs of each namespace use.
	LocalQueues []*kueue.LocalQueue
	// Short is the number of promised devices that the pool does not have.
	Short int64
}

// Render makes the Kueue objects of a pool. namespaces maps each tenant's namespaces to the tenant.
// placement adds the placement check to the ClusterQueues.
func (l *Layout) Render(c *Capacity, namespaces map[string]string, pins Pins, placement bool) *Rendered {
	divisions := l.Divide(c, pins)
	out := &Rendered{Flavor: l.flavor()}
	short := Amounts{}
	for i := range divisions {
		short[divisions[i].Resource] = divisions[i].Short
	}
	out.Short = c.inDevices(short)
	out.Quotas = append(out.Quotas, l.rootCohort(divisions))
	at := 0
	for i := range l.groups {
		if g := &l.groups[i]; g.cohort != "" {
			out.Quotas = append(out.Quotas, l.cohort(g, divisions, at))
			at++
		}
	}
	at = 0
	for i := range l.groups {
		g := &l.groups[i]
		for j := range g.queues {
			out.Quotas = append(out.Quotas, l.clusterQueue(g, &g.queues[j], divisions, at, placement))
			at++
		}
	}
	out.LocalQueues = l.localQueues(namespaces)
	return out
}

func (l *Layout) labels() map[string]string {
	return map[string]string{names.LabelManaged: l.pool.Name}
}

func (l *Layout) flavor() *kueue.ResourceFlavor {
	return &kueue.ResourceFlavor{
		TypeMeta:   typeMeta(kueue.ResourceFlavorKind),
		ObjectMeta: metav1.ObjectMeta{Name: names.Cohort(l.pool.Name), Labels: l.labels()},
		Spec:       kueue.ResourceFlavorSpec{NodeLabels: membership.Selector(l.pool)},
	}
}

func (l *Layout) rootCohort(divisions []Division) *kueue.Cohort {
	return &kueue.Cohort{
		TypeMeta:   typeMeta(kueue.CohortKind),
		ObjectMeta: metav1.ObjectMeta{Name: names.Cohort(l.pool.Name), Labels: l.labels()},
		Spec: kueue.CohortSpec{ResourceGroups: l.resourceGroups(divisions, func(d *Division) kueue.ResourceQuota {
			return kueue.ResourceQuota{NominalQuota: *devices(d.Root)}
		})},
	}
}

func (l *Layout) cohort(g *group, divisions []Division, at int) *kueue.Cohort {
	return &kueue.Cohort{
		TypeMeta:   typeMeta(kueue.CohortKind),
		ObjectMeta: metav1.ObjectMeta{Name: g.cohort, Labels: l.labels()},
		Spec: kueue.CohortSpec{
			ParentName:     names.Cohort(l.pool.Name),
			FairSharing:    &kueue.FairSharing{Weight: thousandths(g.weight)},
			ResourceGroups: l.resourceGroups(divisions, func(d *Division) kueue.ResourceQuota { return quotaOf(&d.Cohorts[at]) }),
		},
	}
}

func (l *Layout) clusterQueue(g *group, q *queue, divisions []Division, at int, placement bool) *kueue.ClusterQueue {
	labels := l.labels()
	if q.tenant != "" {
		labels[v1alpha1.LabelTenant] = q.tenant
	}
	if q.queue != "" {
		labels[names.LabelQueue] = q.queue
	}
	out := &kueue.ClusterQueue{
		TypeMeta:   typeMeta(kueue.ClusterQueueKind),
		ObjectMeta: metav1.ObjectMeta{Name: q.name, Labels: labels},
		Spec: kueue.ClusterQueueSpec{
			CohortName:        cmp.Or(g.cohort, names.Cohort(l.pool.Name)),
			NamespaceSelector: q.selector(),
			QueueingStrategy:  q.strategy,
			Preemption:        &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptLowerPriority, ReclaimWithinCohort: kueue.PreemptAny},
			StopPolicy:        string(q.stop),
			FairSharing:       &kueue.FairSharing{Weight: thousandths(q.weight)},
			ResourceGroups:    l.resourceGroups(divisions, func(d *Division) kueue.ResourceQuota { return quotaOf(&d.Queues[at]) }),
		},
	}
	if q.never {
		out.Spec.Preemption = &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptNever, ReclaimWithinCohort: kueue.PreemptNever}
	}
	if placement {
		out.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{AdmissionChecks: []kueue.AdmissionCheckRule{{Name: names.CheckPlacementObject}}}
	}
	return out
}

// selector selects the namespaces of the tenants that may use the queue.
func (q *queue) selector() *metav1.LabelSelector {
	switch {
	case q.tenant != "":
		return &metav1.LabelSelector{MatchLabels: map[string]string{v1alpha1.LabelTenant: q.tenant}}
	case len(q.tenants) > 0:
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: v1alpha1.LabelTenant, Operator: metav1.LabelSelectorOpIn, Values: q.tenants},
		}}
	default:
		return everyTenant()
	}
}

func everyTenant() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: v1alpha1.LabelTenant, Operator: metav1.LabelSelectorOpExists},
	}}
}

// resourceGroups returns the quotas of the pool's one flavor, by resource.
func (l *Layout) resourceGroups(divisions []Division, of func(*Division) kueue.ResourceQuota) []kueue.ResourceGroup {
	g := kueue.ResourceGroup{Flavors: []kueue.FlavorQuotas{{Name: names.Cohort(l.pool.Name)}}}
	for i := range divisions {
		q := of(&divisions[i])
		q.Name = divisions[i].Resource
		g.CoveredResources = append(g.CoveredResources, q.Name)
		g.Flavors[0].Resources = append(g.Flavors[0].Resources, q)
	}
	return []kueue.ResourceGroup{g}
}

func quotaOf(q *quota.Queue) kueue.ResourceQuota {
	out := kueue.ResourceQuota{NominalQuota: *devices(q.Nominal), BorrowingLimit: devices(q.Borrowing)}
	if q.Lending != nil {
		out.LendingLimit = devices(*q.Lending)
	}
	return out
}

// localQueues returns the LocalQueues of all namespaces, sorted by namespace and name.
func (l *Layout) localQueues(namespaces map[string]string) []*kueue.LocalQueue {
	of := map[string][]string{} // by tenant; under the empty name all of them
	for namespace, tenant := range namespaces {
		of[tenant] = append(of[tenant], namespace)
		of[""] = append(of[""], namespace)
	}
	var out []*kueue.LocalQueue
	for q := range l.all() {
		if q.leaving {
			continue
		}
		users := q.tenants
		if len(users) == 0 {
			users = []string{""}
		}
		for _, namespace := range namespacesOf(of, users) {
			out = append(out, &kueue.LocalQueue{
				TypeMeta:   typeMeta(kueue.LocalQueueKind),
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: names.LocalQueue(l.pool.Name, q.queue), Labels: l.labels()},
				Spec:       kueue.LocalQueueSpec{ClusterQueue: q.name, StopPolicy: string(v1alpha1.StopNone)},
			})
		}
	}
	slices.SortFunc(out, func(a, b *kueue.LocalQueue) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// namespacesOf returns the namespaces of several tenants. A tenant that is named twice contributes them
// once.
func namespacesOf(of map[string][]string, tenants []string) []string {
	if len(tenants) == 1 {
		return of[tenants[0]]
	}
	var out []string
	for _, tenant := range slices.Compact(slices.Sorted(slices.Values(tenants))) {
		out = append(out, of[tenant]...)
	}
	return out
}

func typeMeta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: kueue.SchemeGroupVersion.String(), Kind: kind}
}

func devices(n int64) *resource.Quantity { return resource.NewQuantity(n, resource.DecimalSI) }

func thousandths(n int64) *resource.Quantity { return resource.NewMilliQuantity(n, resource.DecimalSI) }
