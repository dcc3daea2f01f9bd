// SPDX-License-Identifier: Apache-2.0

package placementcheck

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	topologyv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/inspect/clusterobjects"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
	"github.com/nvtopo/nvtopo/pkg/placement/clustertopology"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
)

// World is the objects of a cluster at one moment that placement depends on.
type World struct {
	clusterobjects.Objects

	PriorityClasses []schedulingv1.PriorityClass
	Flavors         []kueue.ResourceFlavor
	Cohorts         []kueue.Cohort
}

// Snapshot is a World for planning, with the promises made in it so far.
type Snapshot struct {
	now    time.Time
	graphs *Graphs
	tree   *fabric.Tree
	levels []gangrequest.Level // of the tree, outermost first
	nodes  []*node             // by node of the tree; not to be changed in place
	known  bool                // some node has a valid topology

	classes  map[string]int32 // PriorityClass -> value; "" is the default
	flavors  map[string]*kueue.ResourceFlavor
	queues   map[string]*kueue.ClusterQueue
	queueFor map[string]string // namespace/LocalQueue -> ClusterQueue
	quotas   quotas
}

// NewSnapshot builds a Snapshot of a World, which must not change afterwards. It has no promises yet.
func NewSnapshot(w *World, g *Graphs) *Snapshot {
	s := &Snapshot{
		now: w.Now, graphs: g, classes: map[string]int32{}, flavors: map[string]*kueue.ResourceFlavor{},
		queues: map[string]*kueue.ClusterQueue{}, queueFor: map[string]string{}, quotas: readQuotas(w.Workloads, w.Now),
	}
	for i := range w.PriorityClasses {
		c := &w.PriorityClasses[i]
		s.classes[c.Name] = c.Value
		if c.GlobalDefault {
			s.classes[""] = c.Value
		}
	}
	for i := range w.Flavors {
		s.flavors[w.Flavors[i].Name] = &w.Flavors[i]
	}
	for i := range w.ClusterQueues {
		s.queues[w.ClusterQueues[i].Name] = &w.ClusterQueues[i]
	}
	for i := range w.LocalQueues {
		q := &w.LocalQueues[i]
		s.queueFor[q.Namespace+"/"+q.Name] = q.Spec.ClusterQueue
	}
	s.readNodes(w)
	s.readPods(w)
	return s
}

// readNodes builds the fabric, and the nodes with their topologies.
func (s *Snapshot) readNodes(w *World) {
	topologies := make(map[string]*topologyv1alpha1.NodeGPUTopology, len(w.Topologies))
	for i := range w.Topologies {
		topologies[w.Topologies[i].Name] = &w.Topologies[i]
	}
	byName, paths := make(map[string]*v1.Node, len(w.Nodes)), make([]clustertopology.Node, len(w.Nodes))
	for i := range w.Nodes {
		n := &w.Nodes[i]
		byName[n.Name] = n
		paths[i] = clustertopology.Node{Name: n.Name, Labels: n.Labels, NoGPUs: topologies[n.Name] == nil}
	}
	s.graphs.forget(byName)
	ct := w.ClusterTopology
	if ct == nil {
		ct = clustertopology.Default(paths)
	}
	s.tree, _ = clustertopology.Tree(ct, paths) // problems are in the ClusterTopology's status
	for d := 1; d <= s.tree.Depth(); d++ {
		s.levels = append(s.levels, gangrequest.Level{Name: s.tree.LevelName(d), NodeLabel: ct.Spec.Levels[d-1].NodeLabel})
	}
	s.nodes = make([]*node, s.tree.Len())
	for at := range s.nodes {
		object := byName[s.tree.Name(at)]
		n := &node{object: object, ready: isReady(object), graph: s.graphs.read(object, topologies[object.Name])}
		s.nodes[at], s.known = n, s.known || n.graph != nil
	}
}

// isReady reports whether the node is ready and not being deleted.
func isReady(n *v1.Node) bool {
	return n.DeletionTimestamp == nil && slices.ContainsFunc(n.Status.Conditions, func(c v1.NodeCondition) bool {
		return c.Type == v1.NodeReady && c.Status == v1.ConditionTrue
	})
}

// readPods adds the live pods to their nodes.
func (s *Snapshot) readPods(w *World) {
	for i := range w.Pods {
		p := &w.Pods[i]
		if p.Spec.NodeName == "" || p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed {
			continue
		}
		if at, ok := s.tree.Node(p.Spec.NodeName); ok {
			s.nodes[at].listed = append(s.nodes[at].listed, usage.NewLivePod(p))
		}
	}
	for _, n := range s.nodes {
		n.here = n.listed
	}
}

// copy returns a Snapshot whose nodes can be replaced without changing s.
func (s *Snapshot) copy() *Snapshot {
	out := *s
	out.nodes = slices.Clone(s.nodes)
	return &out
}

// own replaces a node by a copy that only s has, so that promises can be added to it.
func (s *Snapshot) own(at int) *node {
	n := *s.nodes[at]
	s.nodes[at] = &n
	return &n
}

// without returns the Snapshot without the pods for which leaves is true, and their number. leaves is
// called once for each pod.
func (s *Snapshot) without(leaves func(*v1.Pod) bool) (out *Snapshot, gone int) {
	out = s.copy()
	for at, n := range s.nodes {
		stay := slices.DeleteFunc(slices.Clone(n.here), func(p usage.LivePod) bool { return leaves(p.Object) })
		if len(stay) == len(n.here) {
			continue
		}
		gone += len(n.here) - len(stay)
		n = out.own(at)
		n.here, n.used = stay, nil
	}
	return out, gone
}

// empty returns the cluster with no pods except those of DaemonSets: the best possible case.
func (s *Snapshot) empty() *Snapshot {
	out, _ := s.without(func(p *v1.Pod) bool { return !ofDaemonSet(p) })
	for at, n := range out.nodes {
		if n.graph == nil && len(n.given) == 0 {
			continue
		}
		n = out.own(at)
		n.given, n.used, n.listed = nil, nil, n.here
		if n.graph != nil {
			n.graph = n.graph.Emptied()
		}
	}
	return out
}

func ofDaemonSet(p *v1.Pod) bool {
	owner := metav1.GetControllerOf(p)
	return owner != nil && owner.Kind == "DaemonSet"
}
