// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	topologyv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/inspect/clusterobjects"
	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/clustertopology"
	"github.com/nvtopo/nvtopo/pkg/placement/eviction"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
)

// World is a cluster at one moment. What is not installed or may not be read is empty. Its Jobs, Claims and
// LocalQueues are those of the namespace that is asked about, and all others those of all namespaces: pods
// elsewhere hold GPUs, and Workloads the quota.
type World struct {
	clusterobjects.Objects

	// Profiles are those by which pods are explained, see UseProfiles; the shipped one if there are none.
	Profiles []Profile
	// NoDefinition: the API server does not know NodeGPUTopologies.
	NoDefinition bool
	// ClaimsKnown: Claims are all that the namespace has.
	ClaimsKnown bool
	// QueuesKnown: LocalQueues are all that the namespace has.
	QueuesKnown bool
}

// scene is a World, indexed.
type scene struct {
	*World
	nodes   []*node // in the order of the fabric's tree
	byName  map[string]*node
	tree    *fabric.Tree
	levels  []gangrequest.Level // of the tree, outermost first
	slotter *placement.SlotCounter
	budgets *eviction.Budgets
	*schedulers
	quota quota
}

func newScene(w *World) *scene {
	if len(w.Profiles) == 0 {
		w.Profiles = []Profile{ShippedProfile()}
	}
	s := &scene{World: w, byName: map[string]*node{}, slotter: placement.NewSlotCounter(), schedulers: schedulersOf(w)}
	s.quota = quota{w, s.resources()}
	topologies := map[string]*topologyv1alpha1.NodeGPUTopology{}
	for i := range w.Topologies {
		topologies[w.Topologies[i].Name] = &w.Topologies[i]
	}
	s.readFabric(topologies)
	var budgets []*policyv1.PodDisruptionBudget
	for i := range w.Budgets {
		budgets = append(budgets, &w.Budgets[i])
	}
	s.budgets = eviction.NewBudgets(budgets)
	leases := nodelease.NewTable(0)
	for i := range w.Leases {
		leases.SetOnce(&w.Leases[i], w.Now)
	}
	reader, registry, decoder := &topologyv1alpha1.Reader{}, nvtopo.NewRegistry(s.Profiles[0].Weights), usage.NewDecoder()
	without := placement.NoGraph
	if w.NoDefinition {
		without = placement.NoDefinition
	}
	objects := map[string]*v1.Node{}
	for i := range w.Nodes {
		objects[w.Nodes[i].Name] = &w.Nodes[i]
	}
	for at := range s.tree.Len() {
		n := &node{object: objects[s.tree.Name(at)], counts: without}
		name := n.object.Name
		if t := topologies[name]; t != nil {
			graph, err := decoder.ReadNode(reader, registry, t, leases.Get(nodelease.ExporterPrefix+name), leases.Get(nodelease.AgentPrefix+name))
			if n.graph, n.fault = graph, err; err != nil {
				n.counts = placement.UnreadableGraph
			} else {
				n.counts = placement.CheckGraph(graph, n.object.UID, w.Now)
			}
		}
		s.nodes, s.byName[name] = append(s.nodes, n), n
	}
	s.readPods()
	return s
}

// readFabric makes the tree that gangs are planned on. Nodes that are in no domain are in it too.
func (s *scene) readFabric(topologies map[string]*topologyv1alpha1.NodeGPUTopology) {
	paths := make([]clustertopology.Node, len(s.Nodes))
	for i := range s.Nodes {
		n := &s.Nodes[i]
		paths[i] = clustertopology.Node{Name: n.Name, Labels: n.Labels, NoGPUs: topologies[n.Name] == nil}
	}
	ct := s.ClusterTopology
	if ct == nil {
		ct = clustertopology.Default(paths)
	}
	s.tree, _ = clustertopology.Tree(ct, paths) // problems are in the ClusterTopology's status
	for d := 1; d <= s.tree.Depth(); d++ {
		s.levels = append(s.levels, gangrequest.Level{Name: s.tree.LevelName(d), NodeLabel: ct.Spec.Levels[d-1].NodeLabel})
	}
}

func (s *scene) readPods() {
	for i := range s.Pods {
		p := &s.Pods[i]
		if n := s.byName[p.Spec.NodeName]; n != nil && !ended(p) {
			n.listed = append(n.listed, usage.NewLivePod(p))
		}
	}
	for _, n := range s.nodes {
		n.here = n.listed
	}
}

func ended(p *v1.Pod) bool {
	return p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed
}

func (w *World) pod(namespace, name string) *v1.Pod {
	for i := range w.Pods {
		if p := &w.Pods[i]; p.Namespace == namespace && p.Name == name {
			return p
		}
	}
	return nil
}

// owned are the pods that an object controls.
func (w *World) owned(uid types.UID) (out []*v1.Pod) {
	for i := range w.Pods {
		if slices.ContainsFunc(w.Pods[i].OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == uid }) {
			out = append(out, &w.Pods[i])
		}
	}
	return out
}
