// SPDX-License-Identifier: Apache-2.0

package candidates

import (
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/nodeindex"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
)

// DefaultStride is how many nodes without an event a refresh checks, in turn, so that even a change
// without an event is seen after some cycles.
const DefaultStride = 64

// Index groups the cycle's nodes by state, so that a choice among thousands of nodes compares a few dozen
// states. Make one with NewIndex. Cycles use it one after the other; everything else may be called at any
// time.
type Index struct {
	clock   clock.PassiveClock
	find    func(name string) *Node
	fabric  func() *fabric.Tree
	stride  int
	changes changes
	lists   atomic.Uint64
	forgets atomic.Uint64 // number of calls of Forget

	mu sync.Mutex // guards all below
	nodeStates
	looked time.Time // time of the last refresh
	next   int       // position at which the next list of plain nodes begins
	turn   int       // position at which the next check of unchanged nodes begins
	buffers
}

// buffers has memory that cycles reuse: candidates, those of them that the pod may use, the nodes that
// changed, and those to look up in the queue.
type buffers struct {
	found, usable []nodeindex.Candidate
	changed       []*Node
	asked         []int
}

// NewIndex returns an index without nodes. find returns the Node of a name, and makes it if necessary.
// tree returns the current fabric. stride is DefaultStride except in tests.
func NewIndex(clk clock.PassiveClock, find func(name string) *Node, tree func() *fabric.Tree, stride int) *Index {
	return &Index{clock: clk, find: find, fabric: tree, stride: stride, nodeStates: newNodeStates()}
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

// Listed returns the number of lists made.
func (x *Index) Listed() uint64 { return x.lists.Load() }

// HasBoth reports whether some nodes of the last cycle had accelerators and some had none.
func (x *Index) HasBoth() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.plain > 0 && x.plain < len(x.entries)
}

// TakesWholeNodes reports whether a pod takes all devices of any node it could be placed on, so that the
// choice of devices within a node need not be rated.
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

// Seen is the index's state of one node.
type Seen struct {
	Topology *usage.Node
	Free     map[string]nvtopo.Mask // by resource
}

// Seen returns the index's state of each node that has a topology.
func (x *Index) Seen() map[*Node]Seen {
	x.mu.Lock()
	defer x.mu.Unlock()
	out := map[*Node]Seen{}
	for i := range x.entries {
		// The NodeInfo belongs to the running cycle and is not read here.
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

// refresh updates the index to the cycle's snapshot: it compares two numbers of each node that changed,
// and of some others, and recomputes the nodes that differ. The caller holds x.mu.
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

// align makes one entry per node, keeping those of nodes whose position is unchanged, and reports whether
// the list, or its Nodes, differ from the last one. The snapshot makes a new list whenever a node comes
// or goes between two cycles, and otherwise changes the NodeInfos of the old one in place, also where a
// node went and came back.
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

// Spares returns by node the value that decides between nodes that are otherwise equal; the least is
// best. It is of the last Refresh, and leaves out nodes that came later.
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

// Reserved returns the machines with that resource that are left to pods with more than this number of
// devices, according to the pods at the last Refresh.
func (x *Index) Reserved(resource string, gpus int, order *nodeindex.Order) nodeindex.Reserved {
	x.mu.Lock()
	defer x.mu.Unlock()
	machines := x.byName[resource]
	if machines == nil {
		return nodeindex.Reserved{}
	}
	return machines.Reserved(gpus, order.Headroom)
}
