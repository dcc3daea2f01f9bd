// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"math"
	"time"

	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/placement"
)

// Stamp identifies a state of a node: two equal stamps mean that every demand finds the same there. The
// zero Stamp is unknown and equals none.
type Stamp struct {
	generation       int64
	revision         uint64
	counts, enforced bool
	until            int64 // Unix nanoseconds at which a Lease runs out, unless it is renewed
}

// Same reports whether the node is in the same state for every demand at both stamps.
func (a Stamp) Same(b Stamp) bool {
	a.until, b.until = 0, 0
	return a == b && a != (Stamp{})
}

// Stamper reads the stamps of some nodes, addressed by their positions in a list. It must be used by one
// goroutine only.
type Stamper struct {
	s         *NodeCache
	nodes     []string
	cells     []*cell
	forgotten uint64 // cells.forgotten when the cells were found
	now       time.Time
}

// Stamper returns a Stamper of the nodes of these names.
func (s *NodeCache) Stamper(nodes []string) *Stamper {
	p := &Stamper{s: s, nodes: nodes, cells: make([]*cell, len(nodes)), now: s.clock.Now()}
	p.find()
	return p
}

func (p *Stamper) find() {
	p.forgotten = p.s.cells.forgotten.Load() // before the cells are found: at worst they are found again
	for i, node := range p.nodes {
		p.cells[i] = p.s.cells.ensure(node)
	}
}

// Begin sets the time for the stamps that follow, and finds nodes again that went and came back.
func (p *Stamper) Begin() {
	p.now = p.s.clock.Now()
	if p.forgotten != p.s.cells.forgotten.Load() {
		p.find()
	}
}

// Holds reports whether the node's state is still that of the stamp. It does not look at Leases before
// they can have run out: a Lease that comes back, gets another owner or is deleted changes the revision.
func (p *Stamper) Holds(node int, at *Stamp, info fwk.NodeInfo) bool {
	return p.now.UnixNano() < at.until && at.generation == info.GetGeneration() && at.revision == p.cells[node].candidate.Revision.Load()
}

// Stamp reads the stamp of a node, without allocating memory. A node with nominated allocations has the
// zero Stamp, because the scheduling queue ends a nomination without an event.
func (p *Stamper) Stamp(node int, info fwk.NodeInfo) Stamp {
	x := p.cells[node]
	revision := x.candidate.Revision.Load() // first, so that a concurrent change shows
	if len(x.reserved.View().Nominated) > 0 {
		return Stamp{}
	}
	n := x.entry.Node()
	at := Stamp{generation: info.GetGeneration(), revision: revision, until: math.MaxInt64}
	if n == nil {
		return at
	}
	if at.counts = p.s.topologies.CheckGraph(x.entry, n, info.Node().UID) == placement.Fits; at.counts {
		at.until = min(at.until, n.Exporter.LapsesAt())
	}
	if at.enforced = n.Enforced(p.now); at.enforced {
		at.until = min(at.until, n.Agent.LapsesAt())
	}
	if x.entry.Fault() != "" { // its term may end at any time
		at.until = 0
	}
	return at
}
