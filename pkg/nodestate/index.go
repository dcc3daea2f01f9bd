// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/cluster"
	"github.com/nvtopo/nvtopo/pkg/usage"
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
	pinning int                       // nodes whose kubelet gives exclusive CPUs or memory

	profiles  sets.Set[string] // whose pods are ours
	resources sets.Set[string] // that count as accelerators, of all profiles

	looked time.Time // when the last refresh was
	next   int       // where the next list of plain nodes begins
	turn   int       // where the next look at untouched nodes begins
	stride int       // how many of them one refresh looks at

	touched touched

	// Reused between cycles: candidates of the band that is looked at, those of them
	// that the pod may use, and those whose kubelet makes them worse.
	found, usable, later []cluster.Candidate
	cells                []*cell
	asked                []int // lent to a list while it is made
}

// entry is what the index knows of one node. It holds while NodeInfo generation
// and cell revision, which counts changes of graph and claims, are these.
type entry struct {
	cell       *cell
	generation int64
	rev        uint64
	known      bool
	plain      bool
	node       *usage.Node // whose state is in the index; nil if none is
	mortal     bool        // GPUs of pods that are gone count until the agent dies
}

func newIndex() *index {
	return &index{byName: map[string]*cluster.Index{}, stride: defaultStride, profiles: sets.Set[string]{}, resources: sets.Set[string]{}}
}

const (
	// touchFor is how long a node is looked at again after an event of the informers:
	// the scheduler's cache hears of it in another goroutine, and the snapshot from
	// the cache. What is late by more is left to the stride.
	touchFor = 250 * time.Millisecond
	// defaultStride is how many nodes without an event a refresh looks at, in turn,
	// so that even a change that nobody announced is seen after some cycles.
	defaultStride = 64
)

// touched are the cells that changed since the last refresh, or that an event of
// the last touchFor was about.
type touched struct {
	mu    sync.Mutex
	cells []*cell
}

// touch says that a node's graph or claims changed, which the next refresh sees.
func (s *State) touch(c *cell) { s.touchUntil(c, s.clock.Now()) }

// touchNode says that the scheduler's snapshot of a node changed or soon will.
func (s *State) touchNode(name string) {
	if c := s.cells.get(name); c != nil {
		s.touchUntil(c, s.clock.Now().Add(touchFor))
	}
}

func (s *State) touchUntil(c *cell, until time.Time) {
	s.waker.news.add(c, touch{at: s.clock.Now()})
	t := &s.index.touched
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.touchedUntil.IsZero() {
		t.cells = append(t.cells, c)
	}
	if until.After(c.touchedUntil) {
		c.touchedUntil = until
	}
}

// refresh brings the index up to the cycle's snapshot: it compares two numbers of
// every node that an event was about, and of some others, and computes anew what
// changed. It needs x.mu.
func (x *index) refresh(s *State, nodes []fwk.NodeInfo, snapshot fwk.NodeInfoLister) {
	x.looked = s.clock.Now()
	look := func(i int) {
		e := &x.entries[i]
		if !e.known || e.generation != nodes[i].GetGeneration() || e.rev != e.cell.rev.Load() ||
			e.mortal && !e.node.Enforced(x.looked) {
			x.update(s, i, nodes[i], snapshot)
		}
	}
	if x.align(s, nodes) {
		for i := range nodes {
			look(i)
		}
		return
	}
	t := &x.touched
	t.mu.Lock()
	x.cells = append(x.cells[:0], t.cells...)
	rest := t.cells[:0]
	for _, c := range t.cells {
		if !c.touchedUntil.After(x.looked) {
			c.touchedUntil = time.Time{}
		} else {
			rest = append(rest, c)
		}
	}
	clear(t.cells[len(rest):])
	t.cells = rest
	t.mu.Unlock()
	for _, c := range x.cells {
		if c.position < len(x.entries) && x.entries[c.position].cell == c {
			look(c.position)
		}
	}
	for range min(x.stride, len(nodes)) {
		x.turn = (x.turn + 1) % len(nodes)
		look(x.turn)
	}
}

// align makes one entry per node, keeping those of nodes that stay where they
// are, and reports whether the list is another than before. The snapshot makes a
// new list whenever a node comes or goes, and changes the old one's NodeInfos in
// place otherwise.
func (x *index) align(s *State, nodes []fwk.NodeInfo) bool {
	if x.same(nodes) {
		return false
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
		c.position = i
	}
	x.nodes, x.turn = nodes, 0
	return true
}

func (x *index) same(nodes []fwk.NodeInfo) bool {
	return len(nodes) == len(x.nodes) && (len(nodes) == 0 || &nodes[0] == &x.nodes[0])
}

// oneSort reports whether all nodes had accelerators, or none, as far as is known.
func (x *index) oneSort(nodes []fwk.NodeInfo) bool {
	return x.same(nodes) && (x.plain == 0 || x.plain == len(nodes))
}

// forget takes a node out of all that is counted.
func (x *index) forget(i int) {
	for _, c := range x.byName {
		c.Remove(i)
	}
	if x.entries[i].plain {
		x.plain--
	}
	if n := x.entries[i].node; n != nil && n.Kubelet.Pins() {
		x.pinning--
	}
	x.entries[i] = entry{}
}

// replace takes an entry out of the counts, for one of the topology n.
func (x *index) replace(i int, n *usage.Node) {
	if x.entries[i].node == n {
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
func (x *index) update(s *State, i int, info fwk.NodeInfo, snapshot fwk.NodeInfoLister) {
	c := x.entries[i].cell
	rev := c.rev.Load() // before anything is read, so that a change meanwhile shows
	node, n := info.Node(), c.topology.Node()
	if n != nil && n.NodeUID != node.UID {
		n = nil
	}
	x.replace(i, n)
	e := &x.entries[i]
	*e = entry{cell: c, generation: info.GetGeneration(), rev: rev, known: true, node: n, plain: n == nil || len(n.Accels) == 0}
	for r := range x.resources {
		e.plain = e.plain && info.GetAllocatable().GetScalarResources()[v1.ResourceName(r)] == 0
	}
	if e.plain {
		x.plain++
	}
	if n == nil {
		return
	}
	u := s.usage(c, n, info, snapshot)
	e.mortal = u.Unreleased && u.AgentLived
	for ai, a := range n.Accels {
		if !x.resources.Has(a.Resource) {
			continue // nobody asks for it, and a node may make up names without end
		}
		m := cluster.Machine{
			Tables: a.Tables, Healthy: a.Healthy, Free: u.FreeAt(ai), Degraded: a.Degraded, Kind: a.Kind, Kubelet: n.KubeletPolicy,
			Held: u.Counted[ai], Unknown: u.Foreign[ai],
		}
		if n.Kubelet != nil {
			// Its verdict is asked when the bucket is a candidate.
			m.Kind, m.Kubelet = m.Kind^n.Kubelet.Kind, nvtopo.PolicyNone
		}
		x.of(a.Resource).Put(i, m)
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
