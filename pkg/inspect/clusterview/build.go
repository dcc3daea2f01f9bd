// SPDX-License-Identifier: Apache-2.0

package clusterview

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/inspect/clusterobjects"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/clustertopology"
	"github.com/nvtopo/nvtopo/pkg/placement/diagnosis"
	"github.com/nvtopo/nvtopo/pkg/placement/refusals"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
)

// Of returns the view of a cluster.
func Of(o *clusterobjects.Objects, opt Options) *View { return NewMemo().Of(o, opt) }

// addProblems lists what of a cluster's objects does not count, but for the notes of nodes.
func (v *View) addProblems(o *clusterobjects.Objects, fabric []clustertopology.Problem) {
	if v.Problems, v.NoScheduler = slices.Clone(o.Faults), noScheduler(o); v.NoScheduler != "" {
		v.Problems = append(v.Problems, v.NoScheduler)
	}
	if len(o.Topologies) == 0 && slices.ContainsFunc(o.Nodes, func(n v1.Node) bool { return !n.Status.Allocatable.Name(v1.ResourceName(v.Resource), "").IsZero() }) {
		v.Problems = append(v.Problems, diagnosis.NoTopologies+"; which GPUs are free is not known")
	}
	for i := range fabric {
		v.Problems = append(v.Problems, fabric[i].String())
	}
}

// Of returns the view of a cluster, as the function Of does.
func (m *Memo) Of(o *clusterobjects.Objects, opt Options) *View {
	resource := cmp.Or(opt.Resource, v1alpha1.DefaultResource)
	topologies := make(map[string]*v1alpha1.NodeGPUTopology, len(o.Topologies))
	for i := range o.Topologies {
		topologies[o.Topologies[i].Name] = &o.Topologies[i]
	}
	nodes := make([]clustertopology.Node, len(o.Nodes))
	for i := range o.Nodes {
		n := &o.Nodes[i]
		nodes[i] = clustertopology.Node{Name: n.Name, Labels: n.Labels, NoGPUs: topologies[n.Name] == nil}
	}
	tree, problems := clustertopology.Tree(o.ClusterTopology, nodes)
	v := &View{
		Resource: resource, MinLink: opt.MinLink.String(), Moment: o.Now, Levels: []string{}, objects: o, tree: tree,
		counter: &counter{placement.NewGroupCounter(resource, opt.MinLink), opt.MinLink},
	}
	for _, l := range tree.Levels() {
		v.Levels = append(v.Levels, l.Name)
	}
	v.addProblems(o, problems)
	v.Nodes = make([]*Node, tree.Len())
	m.forget(o.Now)
	r, pods := m.reader.at(o), boundPods(o.Pods)
	gangs, budgets := newPeople(o), budgetsKey(o)
	known, refusing := make(map[string]remembered, len(o.Nodes)), refusals.Of(refusals.Seen(o.Pods), o.Now)
	for i := range o.Nodes {
		n := &o.Nodes[i]
		at, ok := tree.Node(n.Name)
		if !ok || v.Nodes[at] != nil {
			continue
		}
		key := r.keyOf(resource+" "+v.MinLink, budgets, n, topologies[n.Name], pods[n.Name])
		node, ok := m.again(&key, n.Name, o)
		if !ok {
			n = new(*n) // what is remembered must not keep all objects of this moment
			graph, why := r.read(n.UID, copied(topologies[n.Name]))
			node = v.node(n, graph, why, livePods(pods[n.Name]), gangs)
		}
		node.Domains = v.domainsOf(at)
		known[n.Name] = remembered{key, node}
		node.Refuses = ""
		if mark, ok := refusing[n.Name]; ok {
			node.Refuses = mark.String()
		}
		for _, problem := range []string{node.NoGraph, node.Note, node.Refuses} {
			if problem != "" {
				v.Problems = append(v.Problems, "node \""+n.Name+"\": "+problem)
			}
		}
		v.Nodes[at] = node
	}
	m.nodes = known
	v.Nodes = slices.DeleteFunc(v.Nodes, func(n *Node) bool { return n == nil })
	if v.MinLink != "" {
		v.keepLinked(opt.MinLink)
	}
	v.Supply = newSupply()
	for _, n := range v.Nodes {
		v.Supply.add(&n.Supply)
	}
	v.Models = models(v.Nodes)
	return v
}

// boundPods are the bound pods that have not ended, by node.
func boundPods(all []v1.Pod) map[string][]*v1.Pod {
	out := map[string][]*v1.Pod{}
	for i := range all {
		p := &all[i]
		if p.Spec.NodeName != "" && p.Status.Phase != v1.PodSucceeded && p.Status.Phase != v1.PodFailed {
			out[p.Spec.NodeName] = append(out[p.Spec.NodeName], p)
		}
	}
	return out
}

func livePods(pods []*v1.Pod) usage.LivePods {
	var out usage.LivePods
	for _, p := range pods {
		out = append(out, usage.NewLivePod(copied(p)))
	}
	return out
}

// copied is a copy of the object itself, and not of what it points to; nil if there is none.
func copied[T any](o *T) *T {
	if o == nil {
		return nil
	}
	return new(*o)
}

// domainsOf are the domains of a node, by its number in the fabric.
func (v *View) domainsOf(at int) (out []string) {
	for depth := 1; depth <= v.tree.Depth(); depth++ {
		out = append(out, v.tree.Domains(depth)[v.tree.DomainOf(depth, at)].Name)
	}
	return out
}

// node is the view of one node, but for its domains.
func (v *View) node(object *v1.Node, known *usage.Node, why string, pods usage.LivePods, g *people) *Node {
	n := &Node{Name: object.Name, Closed: placement.Closed(object), NoGraph: why, object: object, known: known, accel: -1}
	if known != nil {
		n.input = usage.Input{Node: known, Now: v.objects.Now, Pods: pods, Listed: pods, Reader: usage.AnnotationReader{}}
		n.input.Allocatable = new(usage.AmountsOf(object.Status.Allocatable))
		n.used = usage.Compute(&n.input)
		n.accel = n.used.AccelIndex(v.Resource)
	}
	if n.accel < 0 {
		n.Pods = g.unplaced(pods, v.Resource)
	} else {
		n.Pods = g.holders(n, pods)
		n.describe()
		n.Note = n.note()
		n.Rings, n.Largest = v.counter.rings(n)
	}
	n.Supply = v.counter.supply(n)
	return n
}

// describe fills in what the graph says of single devices.
func (n *Node) describe() {
	g, accel := n.Graph(), n.known.Accels[n.accel]
	holders := make([][]string, g.Len())
	byIndex := map[int]int{}
	for i := range g.GPUs {
		byIndex[g.GPUs[i].Index] = i
	}
	for i := range n.Pods {
		for _, index := range n.Pods[i].GPUs {
			at := byIndex[index]
			holders[at] = append(holders[at], n.Pods[i].FullName())
		}
	}
	n.CountedGPUs, n.Model = n.used.Counted[n.accel], nvtopo.ModelLabel(g.Model())
	for i := range g.GPUs {
		d := &g.GPUs[i]
		gpu := GPU{
			Index: d.Index, UUID: d.UUID, PCIBusID: d.PCIBusID, Model: d.Model, MemoryBytes: d.Memory, NUMANode: d.NUMANode,
			CPUs: d.CPUs.String(), State: Free, Reason: cmp.Or(d.Unhealthy, d.Degraded), Pods: holders[i],
		}
		switch {
		case d.MIG:
			gpu.State = MIG
		case !accel.Healthy.Has(i):
			gpu.State = Unhealthy
		case n.used.Used[n.accel].Has(i):
			gpu.State = Used
		case accel.Degraded.Has(i):
			gpu.State = Degraded
		}
		n.GPUs = append(n.GPUs, gpu)
	}
	for i := range g.NUMANodes {
		numa := &g.NUMANodes[i]
		n.NUMANodes = append(n.NUMANodes, NUMANode{ID: numa.ID, CPUs: numa.CPUs.String(), MemoryBytes: numa.Memory})
	}
	for i := range g.NICs {
		n.NICs = append(n.NICs, NIC{Name: g.NICs[i].Name, NUMANode: g.NICs[i].NUMANode})
	}
}

// maxNoted bounds the pods that a note names.
const maxNoted = 3

// note is why the node has fewer GPUs by number than by its graph, or gives fewer than it has by number,
// why its kubelet's CPUs are not known, and that its agent is silent.
func (n *Node) note() string {
	withheld := n.used.Withheld[n.accel] > 0
	notes := n.lost(withheld)
	if short := n.known.Short(n.accel, n.input.Allocatable); short != "" && withheld && len(notes) == 0 {
		notes = append(notes, short)
	}
	if whole := n.known.WholeOnly(n.accel, n.input.Allocatable); whole != "" {
		notes = append(notes, whole)
	}
	if k := n.known.KubeletStatus; k != nil && k.ExclusiveCPUsProblem != "" {
		notes = append(notes, "kubelet's exclusive CPUs are not known: "+k.ExclusiveCPUsProblem)
	}
	if a := n.known.Agent; a.Until() != nil && a.Of(n.object.UID) && !a.Fresh(n.input.Now) {
		notes = append(notes, "choices of GPUs are not enforced: the node agent's Lease has run out")
	}
	return strings.Join(notes, "; ")
}

// lost names the pods that hold GPUs which are unhealthy or no longer part of the node. Unless the node
// withholds GPUs by number, these are the pods with absent GPUs only.
func (n *Node) lost(withheld bool) (notes []string) {
	pods := 0
	for i := range n.Pods {
		p := &n.Pods[i]
		if p.Lost == "" || !withheld && p.AbsentGPUs == 0 {
			continue
		}
		if pods++; pods <= maxNoted {
			notes = append(notes, p.FullName()+" "+p.Lost)
		}
	}
	if pods > maxNoted {
		notes = append(notes, strconv.Itoa(pods-maxNoted)+" more pods hold such GPUs")
	}
	return notes
}

// indices are the GPUs of a set by their index, ascending.
func indices(g *nvtopo.Graph, set nvtopo.Mask) []int {
	out := make([]int, 0, set.Len())
	for at := range set.All() {
		out = append(out, g.GPUs[at].Index)
	}
	slices.Sort(out)
	return out
}

// ringOf is the best ring of a set of two GPUs or more; nil below.
func ringOf(t *nvtopo.Tables, set nvtopo.Mask) *Ring {
	if set.Len() < 2 {
		return nil
	}
	r := &Ring{
		Class: t.RingClass(set).String(), BandwidthGBps: nvtopo.GBps(t.Ring(set)), BestBandwidthGBps: nvtopo.GBps(t.Best(set.Len())),
	}
	for _, at := range t.RingOrder(set) {
		r.GPUs = append(r.GPUs, t.Graph().GPUs[at].Index)
	}
	return r
}
