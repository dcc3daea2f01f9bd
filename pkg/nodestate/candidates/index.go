// SPDX-License-Identifier: Apache-2.0

package candidates

import (
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/nodeindex"
	"github.com/nvtopo/nvtopo/pkg/podrequest"
	"github.com/nvtopo/nvtopo/pkg/usage"
)

// DefaultStride is how many nodes without an event a refresh looks at, in turn, so that
// even a change that nobody announced is seen after some cycles.
const DefaultStride = 64

// Index is a memo over the cycle's nodes: which are in the same state, so that a choice
// among thousands looks at a few dozen states. Make one with NewIndex. Cycles use it one
// after the other; everything else may be called at any time.
type Index struct {
	clock   clock.PassiveClock
	find    func(name string) *Node
	fabric  func() *fabric.Tree
	stride  int
	changes changes
	lists   atomic.Uint64
	forgets atomic.Uint64 // how often Nodes were forgotten

	mu      sync.Mutex     // guards all below
	nodes   []fwk.NodeInfo // the snapshot's list that entries are aligned with
	aligned uint64         // forgets when they were
	entries []entry
	byName  map[string]*nodeindex.Index // resource -> its machines by state
	tree    *fabric.Tree                // that places are of
	places  *nodeindex.Places           // where the entries' nodes are; nil: nobody knows
	plain   int                         // nodes without any accelerator
	pinning int                         // nodes whose kubelet gives exclusive CPUs or memory

	resources sets.Set[string] // that count as accelerators

	looked time.Time // when the last refresh was
	next   int       // where the next list of plain nodes begins
	turn   int       // where the next look at unchanged nodes begins

	// Memory that cycles use again: candidates, those of them that the pod may use, the nodes that
	// changed, those that the queue is asked about, and the pods of a node by their GPUs.
	found, usable []nodeindex.Candidate
	changed       []*Node
	asked, pods   []int
}

// entry is what the index knows of one node. It holds while the generation of its NodeInfo
// and the revision of its Node are these.
type entry struct {
	of         *Node
	generation int64
	revision   uint64
	known      bool
	plain      bool
	topology   *usage.Node // whose state is in the index; nil if none is
	mortal     bool        // GPUs of pods that are gone count until the agent dies
}

// NewIndex returns an index of no nodes. find returns the Node of a name, and makes it if
// need be. tree returns where nodes are now. stride is DefaultStride but in tests.
func NewIndex(clk clock.PassiveClock, find func(name string) *Node, tree func() *fabric.Tree, stride int) *Index {
	return &Index{clock: clk, find: find, fabric: tree, stride: stride, byName: map[string]*nodeindex.Index{}, resources: sets.Set[string]{}}
}

// AddResources adds resources to those that are accelerators.
func (x *Index) AddResources(resources ...string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.resources.Insert(resources...)
}

// Resources returns the accelerators, in order.
func (x *Index) Resources() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return sets.List(x.resources)
}

// Listed is how many lists were made.
func (x *Index) Listed() uint64 { return x.lists.Load() }

// HasBoth reports whether some nodes of the last cycle had accelerators and some
// had none.
func (x *Index) HasBoth() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.plain > 0 && x.plain < len(x.entries)
}

// TakesWholeNodes reports whether a pod takes all devices of any node it could be placed
// on, so that no other place on the node is left to be rated.
func (x *Index) TakesWholeNodes(r *podrequest.Request) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, res := range r.Resources {
		machines := x.byName[res.Name]
		if machines == nil || machines.Largest() == 0 || res.Count < machines.Largest() {
			return false
		}
	}
	return r.HasGPUs()
}

// Seen is what the index has of one node.
type Seen struct {
	Topology *usage.Node
	Free     map[string]nvtopo.Mask // by resource
}

// Seen returns what the index has of each node that has a topology.
func (x *Index) Seen() map[*Node]Seen {
	x.mu.Lock()
	defer x.mu.Unlock()
	out := map[*Node]Seen{}
	for i := range x.entries {
		// Not the NodeInfo: it is the running cycle's.
		n := x.entries[i].topology
		if n == nil {
			continue
		}
		free := map[string]nvtopo.Mask{}
		for _, a := range n.Accels {
			if m, ok := x.of(a.Resource).Machine(i); ok {
				free[a.Resource] = m.Free
			}
		}
		out[x.entries[i].of] = Seen{Topology: n, Free: free}
	}
	return out
}

// refresh brings the index up to the cycle's snapshot: it compares two numbers of each
// node that changed, and of some others, and computes anew what differs. It needs x.mu.
func (x *Index) refresh(nodes []fwk.NodeInfo, snapshot fwk.NodeInfoLister) {
	x.looked = x.clock.Now()
	look := func(i int) {
		e := &x.entries[i]
		if !e.known || e.generation != nodes[i].GetGeneration() || e.revision != e.of.Revision.Load() ||
			e.mortal && !e.topology.Enforced(x.looked) {
			x.update(i, nodes[i], snapshot)
		}
	}
	aligned := x.align(nodes)
	if tree := x.fabric(); aligned || tree != x.tree {
		x.locate(tree)
	}
	if aligned {
		for i := range nodes {
			look(i)
		}
		return
	}
	x.changed = x.changes.take(x.changed[:0], x.looked)
	for _, n := range x.changed {
		if n.position < len(x.entries) && x.entries[n.position].of == n {
			look(n.position)
		}
	}
	for range min(x.stride, len(nodes)) {
		x.turn = (x.turn + 1) % len(nodes)
		look(x.turn)
	}
}

// align makes one entry per node, keeping those of nodes that stay where they
// are, and reports whether the list is another than before, or of other Nodes. The snapshot
// makes a new list whenever a node comes or goes between two cycles, and changes the old one's
// NodeInfos in place otherwise, also where a node went and came back.
func (x *Index) align(nodes []fwk.NodeInfo) bool {
	forgets := x.forgets.Load() // before Nodes are found: at worst they are found again
	if x.same(nodes) && x.aligned == forgets {
		return false
	}
	for i := len(nodes); i < len(x.entries); i++ {
		x.forget(i)
	}
	x.entries = append(x.entries, make([]entry, max(0, len(nodes)-len(x.entries)))...)[:len(nodes)]
	for i := range nodes {
		n := x.find(nodes[i].Node().Name)
		if x.entries[i].of != n {
			x.forget(i)
			x.entries[i] = entry{of: n}
		}
		n.position = i
	}
	x.nodes, x.aligned, x.turn = nodes, forgets, 0
	return true
}

// Spares says by node what decides between nodes that are equal otherwise; the least is best. It
// is of the last Refresh, and leaves out nodes that came later.
func (x *Index) Spares(resource string, nodes []fwk.NodeInfo) map[string]nodeindex.Spare {
	x.mu.Lock()
	defer x.mu.Unlock()
	machines := x.byName[resource]
	if machines == nil {
		return nil
	}
	out := make(map[string]nodeindex.Spare, len(nodes))
	for _, info := range nodes {
		n := x.find(info.Node().Name)
		if n.position < len(x.entries) && x.entries[n.position].of == n {
			out[info.Node().Name] = machines.Spare(n.position)
		}
	}
	return out
}

// Reserved are the machines with that resource that are left to larger pods than one of so many
// devices, by what ran on them at the last Refresh.
func (x *Index) Reserved(resource string, gpus int, order *nodeindex.Order) nodeindex.Reserved {
	x.mu.Lock()
	defer x.mu.Unlock()
	machines := x.byName[resource]
	if machines == nil {
		return nodeindex.Reserved{}
	}
	return machines.Reserved(gpus, order.Headroom)
}

// locate takes over where the nodes are.
func (x *Index) locate(tree *fabric.Tree) {
	before := x.places
	x.tree, x.places = tree, tree.Places(len(x.nodes), func(i int) string { return x.nodes[i].Node().Name })
	if before == nil && x.places == nil {
		return
	}
	for _, machines := range x.byName {
		machines.SetPlaces(x.places)
	}
}

func (x *Index) same(nodes []fwk.NodeInfo) bool {
	return len(nodes) == len(x.nodes) && (len(nodes) == 0 || &nodes[0] == &x.nodes[0])
}

// oneSort reports whether all nodes had accelerators, or none, as far as is known.
func (x *Index) oneSort(nodes []fwk.NodeInfo) bool {
	return x.same(nodes) && (x.plain == 0 || x.plain == len(nodes))
}

// forget takes a node out of all that is counted.
func (x *Index) forget(i int) {
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

// replace takes an entry out of the counts, for one of the topology n.
func (x *Index) replace(i int, n *usage.Node) {
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

// update computes a node's state anew.
func (x *Index) update(i int, info fwk.NodeInfo, snapshot fwk.NodeInfoLister) {
	of := x.entries[i].of
	revision := of.Revision.Load() // before anything is read, so that a change meanwhile shows
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
			continue // nobody asks for it, and a node may make up names without end
		}
		var singles bool
		x.pods, singles = podsOn(info, a.Resource, x.pods[:0])
		m := nodeindex.Machine{
			Tables: a.Tables, Healthy: a.Healthy, Free: u.FreeAt(ai), Degraded: a.Degraded, Kind: a.Kind, Kubelet: n.KubeletPolicy,
			Held: u.Counted[ai], Unknown: u.Foreign[ai], Singles: singles,
		}
		if n.Kubelet != nil {
			// Its verdict is asked when the bucket is a candidate.
			m.Kind, m.Kubelet = m.Kind^n.Kubelet.Kind, nvtopo.PolicyNone
		}
		machines := x.of(a.Resource)
		machines.Put(i, m)
		machines.Run(i, x.pods)
	}
}

// podsOn appends how many devices of the resource each pod on a node has, and reports whether one of
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

func (x *Index) of(resource string) *nodeindex.Index {
	c, ok := x.byName[resource]
	if !ok {
		c = nodeindex.NewIndex()
		c.SetPlaces(x.places)
		x.byName[resource] = c
	}
	return c
}
