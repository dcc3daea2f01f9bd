// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/nvtopo/nvtopo/pkg/allocation"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/check"
	"github.com/nvtopo/nvtopo/pkg/clustertopology"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/release"
)

// readFabric reads the fabric of a cluster and what is free there. ct is used instead of the
// cluster's own if it is not nil.
func (c *clusterClients) readFabric(ctx context.Context, ct *v1alpha1.ClusterTopology, resource string) (*fabricCluster, error) {
	if ct == nil {
		var err error
		if ct, err = fetchClusterTopology(ctx, c.dyn); err != nil {
			return nil, err
		}
	}
	w, err := check.Read(ctx, c.kube, c.dyn, release.Namespace)
	if err != nil {
		return nil, inputf("%w", err)
	}
	return liveFabric(ct, w, resource), nil
}

// liveFabric makes a cluster's objects what a cluster on paper is.
func liveFabric(ct *v1alpha1.ClusterTopology, w *check.World, resource string) *fabricCluster {
	topologies := map[string]*v1alpha1.NodeGPUTopology{}
	for i := range w.Topologies {
		topologies[w.Topologies[i].Name] = &w.Topologies[i]
	}
	nodes := make([]clustertopology.Node, len(w.Nodes))
	for i := range w.Nodes {
		n := &w.Nodes[i]
		nodes[i] = clustertopology.Node{Name: n.Name, Labels: n.Labels, NoGPUs: topologies[n.Name] == nil}
	}
	tree, problems := clustertopology.Tree(ct, nodes)
	out := &fabricCluster{tree: tree, tables: make([]*nvtopo.Tables, tree.Len()), free: make([]nvtopo.Mask, tree.Len()), notes: map[int]string{}}
	for i := range problems {
		out.problems = append(out.problems, problems[i].String())
	}
	pods := map[string][]*v1.Pod{}
	for i := range w.Pods {
		if p := &w.Pods[i]; p.Spec.NodeName != "" && p.Status.Phase != v1.PodSucceeded && p.Status.Phase != v1.PodFailed {
			pods[p.Spec.NodeName] = append(pods[p.Spec.NodeName], p)
		}
	}
	registry := nvtopo.NewRegistry(nvtopo.DefaultWeights())
	for i := range w.Nodes {
		n := &w.Nodes[i]
		at, ok := tree.Node(n.Name)
		if !ok {
			continue
		}
		if n.Spec.Unschedulable {
			out.notes[at] = "cordoned"
		}
		topology := topologies[n.Name]
		g, why := usableGraph(n, topology, resource)
		if why != "" {
			out.problems = append(out.problems, fmt.Sprintf("node %q: %s", n.Name, why))
		}
		if g == nil {
			continue
		}
		out.tables[at] = registry.Tables(g)
		out.free[at] = g.Healthy() &^ g.Degraded() &^ heldGPUs(g, topology, pods[n.Name], resource)
	}
	return out
}

// usableGraph is the graph by which the scheduler chooses on a node; why says why there is
// none although one was published.
func usableGraph(n *v1.Node, t *v1alpha1.NodeGPUTopology, resource string) (g *nvtopo.Graph, why string) {
	switch {
	case t == nil:
		return nil, ""
	case t.Spec.NodeUID != n.UID:
		return nil, "its graph is of an earlier node of the name"
	case meta.IsStatusConditionTrue(t.Status.Conditions, v1alpha1.ConditionStale):
		return nil, "its graph is stale"
	}
	graphs, err := t.Graphs()
	if err != nil {
		return nil, err.Error()
	}
	return graphs[resource], ""
}

// heldGPUs are the GPUs that pods hold by their annotations or by kubelet's record. For a pod
// of which neither says which GPUs it has, as many count, the last ones first.
func heldGPUs(g *nvtopo.Graph, t *v1alpha1.NodeGPUTopology, pods []*v1.Pod, resource string) (held nvtopo.Mask) {
	counted := 0
	for _, p := range pods {
		var own nvtopo.Mask
		if a, err := allocation.Of(p, p.Spec.NodeName); err == nil {
			own = a.Mask(resource, g)
		}
		for i := range t.Status.Allocations {
			if a := &t.Status.Allocations[i]; a.PodUID == p.UID && a.Resource == resource {
				recorded, _ := g.Positions(a.GPUs) // another is in nobody's way
				own |= recorded
			}
		}
		counted += max(0, requested(p, resource)-own.Len())
		held |= own
	}
	for i := g.Len() - 1; i >= 0 && counted > 0; i-- {
		if gpu := nvtopo.MaskOf(i); held&gpu == 0 {
			held |= gpu
			counted--
		}
	}
	return held
}

// requested is how many devices a pod asks for: its containers together, or one of those that
// run before them.
func requested(p *v1.Pod, resource string) int {
	of := func(c *v1.Container) int {
		q := c.Resources.Limits[v1.ResourceName(resource)]
		return int(min(max(q.Value(), 0), nvtopo.MaxGPUs))
	}
	sum, first := 0, 0
	for i := range p.Spec.Containers {
		sum += of(&p.Spec.Containers[i])
	}
	for i := range p.Spec.InitContainers {
		if c := &p.Spec.InitContainers[i]; c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways {
			sum += of(c)
		} else {
			first = max(first, of(c))
		}
	}
	return max(sum, first)
}
