// SPDX-License-Identifier: Apache-2.0

package candidates

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/nodeindex"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
)

// nodeStates groups the nodes of a snapshot's list by their free devices. The caller of its methods holds
// Index.mu.
type nodeStates struct {
	nodes   []fwk.NodeInfo // the snapshot's list that entries are aligned with
	aligned uint64         // Index.forgets when they were aligned
	entries []entry
	byName  map[string]*nodeindex.Index // resource -> its machines by state
	tree    *fabric.Tree                // the fabric that places are from
	places  *nodeindex.Places           // where the entries' nodes are; nil: unknown
	plain   int                         // nodes without any accelerator
	pinning int                         // nodes whose kubelet assigns exclusive CPUs or memory

	resources sets.Set[string] // the resources that are accelerators
	pods      []int            // GPUs of each pod of one node: memory that is reused
}

func newNodeStates() nodeStates {
	return nodeStates{byName: map[string]*nodeindex.Index{}, resources: sets.Set[string]{}}
}

// entry is the index's state of one node. It is current while the generation of its NodeInfo and the
// revision of its Node are these.
type entry struct {
	of         *Node
	generation int64
	revision   uint64
	known      bool
	plain      bool
	topology   *usage.Node // the topology whose state is in the index; nil if none is
	mortal     bool        // GPUs of pods that are gone are used until the agent dies
}

// locate sets the places of the nodes in the fabric.
func (x *nodeStates) locate(tree *fabric.Tree) {
	before := x.places
	x.tree, x.places = tree, tree.Places(len(x.nodes), func(i int) string { return x.nodes[i].Node().Name })
	if before == nil && x.places == nil {
		return
	}
	for _, machines := range x.byName {
		machines.SetPlaces(x.places)
	}
}

func (x *nodeStates) same(nodes []fwk.NodeInfo) bool {
	return len(nodes) == len(x.nodes) && (len(nodes) == 0 || &nodes[0] == &x.nodes[0])
}

// oneSort reports whether all nodes had accelerators, or none, as far as is known.
func (x *nodeStates) oneSort(nodes []fwk.NodeInfo) bool {
	return x.same(nodes) && (x.plain == 0 || x.plain == len(nodes))
}

// forget removes a node from all counts.
func (x *nodeStates) forget(i int) {
	for _, c := range x.byName {
		c.Remove(i)
	}
	if x.entries[i].plain {
		x.plain--
	}
	if n := x.entries[i].topology; n != nil && n.Kubelet.Pins() {
		x.pinning--
	}
	x.entries[i] = entry{}
}

// replace removes an entry from the counts if its topology differs from n, which will replace it.
func (x *nodeStates) replace(i int, n *usage.Node) {
	if x.entries[i].topology == n {
		if x.entries[i].plain {
			x.plain--
		}
		return
	}
	x.forget(i)
	if n != nil && n.Kubelet.Pins() {
		x.pinning++
	}
}

// update recomputes a node's state.
func (x *nodeStates) update(i int, info fwk.NodeInfo, snapshot fwk.NodeInfoLister) {
	of := x.entries[i].of
	revision := of.Revision.Load() // before anything is read, so that a concurrent change shows
	node, n := info.Node(), of.source.Topology()
	if n != nil && n.NodeUID != node.UID {
		n = nil
	}
	x.replace(i, n)
	e := &x.entries[i]
	*e = entry{of: of, generation: info.GetGeneration(), revision: revision, known: true, topology: n, plain: n == nil || len(n.Accels) == 0}
	for r := range x.resources {
		e.plain = e.plain && info.GetAllocatable().GetScalarResources()[v1.ResourceName(r)] == 0
	}
	if e.plain {
		x.plain++
	}
	if n == nil {
		return
	}
	u := of.source.Usage(n, info, snapshot)
	e.mortal = u.Unreleased && u.AgentLived
	for ai, a := range n.Accels {
		if !x.resources.Has(a.Resource) {
			continue // no profile serves it, and a node may make up any number of names
		}
		var singles bool
		x.pods, singles = podsOn(info, a.Resource, x.pods[:0])
		m := nodeindex.Machine{
			Tables: a.Tables, Healthy: a.Healthy, Free: u.FreeAt(ai), Degraded: a.Degraded, Kind: a.Kind, Kubelet: n.KubeletPolicy,
			Held: u.Counted[ai], Unknown: u.Foreign[ai], Singles: singles,
		}
		if n.Kubelet != nil {
			// Its admission is computed when the bucket is a candidate.
			m.Kind, m.Kubelet = m.Kind^n.Kubelet.Kind, nvtopo.PolicyNone
		}
		machines := x.of(a.Resource)
		machines.Put(i, m)
		machines.Run(i, x.pods)
	}
}

// podsOn appends the number of devices of the resource of each pod on a node, and reports whether one of
// these pods is in no gang.
func podsOn(info fwk.NodeInfo, resource string, into []int) (pods []int, singles bool) {
	for _, p := range info.GetPods() {
		n := p.CalculateResource().Resource.GetScalarResources()[v1.ResourceName(resource)]
		if n <= 0 {
			continue
		}
		into = append(into, int(min(n, nvtopo.MaxGPUs)))
		if _, member := gangrequest.KeyOf(p.GetPod()); !member {
			singles = true
		}
	}
	return into, singles
}

func (x *nodeStates) of(resource string) *nodeindex.Index {
	c, ok := x.byName[resource]
	if !ok {
		c = nodeindex.NewIndex()
		c.SetPlaces(x.places)
		x.byName[resource] = c
	}
	return c
}
