// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/nvtopo/cluster"
)

// index is a memo over the cycle's nodes: which are in the same state, so that a
// choice among thousands looks at a few dozen states. It is advisory: what it
// lists Filter judges again from the NodeInfo.
type index struct {
	mu      sync.Mutex
	nodes   []fwk.NodeInfo // the snapshot's list that entries are aligned with
	entries []entry
	byName  map[string]*cluster.Index // resource -> its machines by state
	plain   int                       // nodes without any accelerator
	looked  time.Time                 // when the last refresh was
	next    int                       // where the next list of plain nodes begins

	found []cluster.Candidate // reused between cycles
}

// entry is what the index knows of one node. It holds while NodeInfo generation
// and cell revision, which counts changes of graph and claims, are these.
type entry struct {
	cell       *cell
	generation int64
	rev        uint64
	known      bool
	plain      bool
	node       *Node // whose state is in the index; nil if none is
}

func newIndex() *index {
	return &index{byName: map[string]*cluster.Index{}}
}

// refresh brings the index up to the cycle's snapshot. It looks at two numbers of
// every node and computes anew what changed. It needs x.mu.
func (x *index) refresh(s *State, nodes []fwk.NodeInfo, snapshot fwk.NodeInfoLister, resources []string) {
	x.align(s, nodes)
	for i := range x.entries {
		e := &x.entries[i]
		if e.known && e.generation == nodes[i].GetGeneration() && e.rev == e.cell.rev.Load() {
			continue
		}
		x.update(s, i, nodes[i], snapshot, resources)
	}
	x.looked = s.clock.Now()
}

// align makes one entry per node, keeping those of nodes that stay where they
// are. The snapshot makes a new list whenever a node comes or goes, and changes
// the old one's NodeInfos in place otherwise.
func (x *index) align(s *State, nodes []fwk.NodeInfo) {
	if x.same(nodes) {
		return
	}
	for i := len(nodes); i < len(x.entries); i++ {
		x.forget(i)
	}
	x.entries = append(x.entries, make([]entry, max(0, len(nodes)-len(x.entries)))...)[:len(nodes)]
	for i := range nodes {
		c := s.cells.ensure(nodes[i].Node().Name)
		if x.entries[i].cell != c {
			x.forget(i)
			x.entries[i] = entry{cell: c}
		}
	}
	x.nodes = nodes
}

func (x *index) same(nodes []fwk.NodeInfo) bool {
	return len(nodes) == len(x.nodes) && (len(nodes) == 0 || &nodes[0] == &x.nodes[0])
}

// forget takes a node out of all that is counted.
func (x *index) forget(i int) {
	for _, c := range x.byName {
		c.Remove(i)
	}
	if x.entries[i].plain {
		x.plain--
	}
	x.entries[i] = entry{}
}

// update computes a node's state anew.
func (x *index) update(s *State, i int, info fwk.NodeInfo, snapshot fwk.NodeInfoLister, resources []string) {
	c := x.entries[i].cell
	rev := c.rev.Load() // before anything is read, so that a change meanwhile shows
	node, n := info.Node(), c.node.Load()
	if n != nil && n.NodeUID != node.UID {
		n = nil
	}
	if x.entries[i].node != n {
		x.forget(i)
	} else if x.entries[i].plain {
		x.plain--
	}
	e := &x.entries[i]
	*e = entry{cell: c, generation: info.GetGeneration(), rev: rev, known: true, node: n, plain: n == nil || len(n.Accels) == 0}
	for _, r := range resources {
		e.plain = e.plain && info.GetAllocatable().GetScalarResources()[v1.ResourceName(r)] == 0
	}
	if e.plain {
		x.plain++
	}
	if n == nil {
		return
	}
	u := s.usage(c, n, info, snapshot)
	for ai, a := range n.Accels {
		x.of(a.Resource).Put(i, cluster.Machine{
			Tables: a.Tables, Healthy: a.Healthy, Free: u.free(ai), Kind: a.kind, Kubelet: n.KubeletPolicy,
			Held: u.counted[ai], Unknown: u.foreign[ai],
		})
	}
}

func (x *index) of(resource string) *cluster.Index {
	c, ok := x.byName[resource]
	if !ok {
		c = cluster.NewIndex()
		x.byName[resource] = c
	}
	return c
}
