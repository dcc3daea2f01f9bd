// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"

	topologyv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/clustertopology"
	"github.com/nvtopo/nvtopo/pkg/placement/eviction"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
)

// cluster is its nodes with all that is on them, as they are or as they are thought.
type cluster struct {
	*schedulers
	world   *World
	now     time.Time
	nodes   []*node // in the order of the fabric's tree
	byName  map[string]*node
	tree    *fabric.Tree
	levels  []gangrequest.Level // of the tree, outermost first
	slotter *placement.SlotCounter
	budgets *eviction.Budgets
}

func newCluster(w *World) *cluster {
	c := &cluster{schedulers: schedulersOf(w), world: w, now: w.Now, byName: map[string]*node{}, slotter: placement.NewSlotCounter()}
	topologies := map[string]*topologyv1alpha1.NodeGPUTopology{}
	for i := range w.Topologies {
		topologies[w.Topologies[i].Name] = &w.Topologies[i]
	}
	c.readFabric(w, topologies)
	var budgets []*policyv1.PodDisruptionBudget
	for i := range w.Budgets {
		budgets = append(budgets, &w.Budgets[i])
	}
	c.budgets = eviction.NewBudgets(budgets)
	leases := nodelease.NewTable(0)
	for i := range w.Leases {
		leases.SetOnce(&w.Leases[i], w.Now)
	}
	reader, registry, decoder := &topologyv1alpha1.Reader{}, nvtopo.NewRegistry(w.Profiles[0].Weights), usage.NewDecoder()
	without := placement.NoGraph
	if w.NoDefinition {
		without = placement.NoDefinition
	}
	objects := map[string]*v1.Node{}
	for i := range w.Nodes {
		objects[w.Nodes[i].Name] = &w.Nodes[i]
	}
	for at := range c.tree.Len() {
		n := &node{object: objects[c.tree.Name(at)], counts: without}
		name := n.object.Name
		if t := topologies[name]; t != nil {
			graph, err := decoder.ReadNode(reader, registry, t, leases.Get(nodelease.ExporterPrefix+name), leases.Get(nodelease.AgentPrefix+name))
			if n.graph, n.fault = graph, err; err != nil {
				n.counts = placement.UnreadableGraph
			} else {
				n.counts = placement.CheckGraph(graph, n.object.UID, w.Now)
			}
		}
		c.nodes, c.byName[name] = append(c.nodes, n), n
	}
	c.readPods(w.Pods)
	return c
}

// readFabric makes the tree that gangs are planned on. Nodes that are in no domain are in it too.
func (c *cluster) readFabric(w *World, topologies map[string]*topologyv1alpha1.NodeGPUTopology) {
	paths := make([]clustertopology.Node, len(w.Nodes))
	for i := range w.Nodes {
		n := &w.Nodes[i]
		paths[i] = clustertopology.Node{Name: n.Name, Labels: n.Labels, NoGPUs: topologies[n.Name] == nil}
	}
	ct := w.ClusterTopology
	if ct == nil {
		ct = clustertopology.Default(paths)
	}
	c.tree, _ = clustertopology.Tree(ct, paths) // problems are in the ClusterTopology's status
	for d := 1; d <= c.tree.Depth(); d++ {
		c.levels = append(c.levels, gangrequest.Level{Name: c.tree.LevelName(d), NodeLabel: ct.Spec.Levels[d-1].NodeLabel})
	}
}

func (c *cluster) readPods(pods []v1.Pod) {
	for i := range pods {
		p := &pods[i]
		if n := c.byName[p.Spec.NodeName]; n != nil && !ended(p) {
			n.listed = append(n.listed, usage.NewLivePod(p))
		}
	}
	for _, n := range c.nodes {
		n.here = n.listed
	}
}

func ended(p *v1.Pod) bool {
	return p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed
}

// podAsk is a pod that asks for one of the cluster's nodes.
type podAsk struct {
	*cluster
	q *question
}

func (c *cluster) forPod(q *question) *podAsk { return &podAsk{c, q} }
