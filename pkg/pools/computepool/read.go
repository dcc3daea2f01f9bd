// SPDX-License-Identifier: Apache-2.0

package computepool

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	topology "github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// asCached lists the cache's objects without copying them. They must not be changed.
const asCached = client.UnsafeDisableDeepCopy

// readCluster reads the objects that a plan is made from, from the cache.
func (r *reconciler) readCluster(ctx context.Context) (*Cluster, error) {
	var (
		pools      v1alpha1.ComputePoolList
		nodes      v1.NodeList
		topologies topology.NodeGPUTopologyList
		pods       v1.PodList
		workloads  kueue.WorkloadList
	)
	for _, list := range []client.ObjectList{&pools, &nodes, &topologies, &pods, &workloads} {
		if err := r.client.List(ctx, list, asCached); err != nil {
			return nil, fmt.Errorf("list %T: %w", list, err)
		}
	}
	c := &Cluster{
		Pools: pointers(pools.Items), Nodes: pointers(nodes.Items), Pods: pointers(pods.Items), Workloads: pointers(workloads.Items),
		Topologies: map[string]*topology.NodeGPUTopology{},
		Priority:   func(job *batchv1.Job) int64 { return r.priority(ctx, job) },
	}
	for i := range topologies.Items {
		c.Topologies[topologies.Items[i].Name] = &topologies.Items[i]
	}
	return c, c.readTenants(ctx, r.client)
}

// readTenants reads the tenant of each namespace.
func (c *Cluster) readTenants(ctx context.Context, from client.Reader) error {
	var namespaces v1.NamespaceList
	if err := from.List(ctx, &namespaces, asCached, client.HasLabels{v1alpha1.LabelTenant}); err != nil {
		return fmt.Errorf("list the tenants' namespaces: %w", err)
	}
	c.Tenants, c.Open = map[string]string{}, map[string]string{}
	for i := range namespaces.Items {
		n := &namespaces.Items[i]
		tenant := n.Labels[v1alpha1.LabelTenant]
		if tenant == "" {
			continue
		}
		c.Tenants[n.Name] = tenant
		if n.DeletionTimestamp == nil {
			c.Open[n.Name] = tenant
		}
	}
	return nil
}

// priority returns the priority of the ElasticJob whose base a job is; 0 for other jobs.
func (r *reconciler) priority(ctx context.Context, job *batchv1.Job) int64 {
	name := job.Labels[names.LabelElasticJob]
	if name == "" {
		return 0
	}
	ej := elasticJob()
	if err := r.client.Get(ctx, client.ObjectKey{Namespace: job.Namespace, Name: name}, ej, asCached); err != nil {
		return 0
	}
	priority, _, _ := unstructured.NestedInt64(ej.Object, "spec", "priority")
	return priority
}

// elasticJob returns an empty unstructured ElasticJob to read into. The API server admits an ElasticJob
// whose template is no pod template; one such would fail a typed cache, and with it all pools.
func elasticJob() *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind(v1alpha1.ElasticJobKind))
	return u
}

// readObjects reads the Kueue objects of a pool, and the non-preemptible jobs, from the cache or from
// the API server.
func readObjects(ctx context.Context, from client.Reader, pool string) (*Objects, error) {
	var (
		flavors kueue.ResourceFlavorList
		cohorts kueue.CohortList
		queues  kueue.ClusterQueueList
		locals  kueue.LocalQueueList
		jobs    batchv1.JobList
	)
	ours := client.MatchingLabels{names.LabelManaged: pool}
	for _, list := range []client.ObjectList{&flavors, &cohorts, &queues} {
		if err := from.List(ctx, list, ours); err != nil {
			return nil, fmt.Errorf("list %T: %w", list, err)
		}
	}
	if err := from.List(ctx, &locals); err != nil {
		return nil, fmt.Errorf("list %T: %w", &locals, err)
	}
	if err := from.List(ctx, &jobs, client.MatchingLabels{kueue.LabelPriorityClass: names.ProtectedClass}); err != nil {
		return nil, fmt.Errorf("list the jobs that must not be preempted: %w", err)
	}
	out := &Objects{Flavors: pointers(flavors.Items), Jobs: pointers(jobs.Items)}
	for i := range locals.Items {
		if q := &locals.Items[i]; q.Labels[names.LabelManaged] == pool {
			out.LocalQueues = append(out.LocalQueues, q)
		} else {
			out.OtherLocalQueues = append(out.OtherLocalQueues, q)
		}
	}
	for i := range cohorts.Items {
		out.Quotas = append(out.Quotas, &cohorts.Items[i])
	}
	for i := range queues.Items {
		out.Quotas = append(out.Quotas, &queues.Items[i])
	}
	return out, nil
}

func pointers[T any](items []T) []*T {
	out := make([]*T, 0, len(items))
	for i := range items {
		out = append(out, &items[i])
	}
	return out
}
