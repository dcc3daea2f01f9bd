// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"math"
	"time"

	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/placement"
)

// Stamp tells two moments apart at which a node has something else for some demand. The zero
// Stamp is not known: look again.
type Stamp struct {
	generation       int64
	revision         uint64
	counts, enforced bool
	until            int64 // Unix nanoseconds: when a Lease runs out, unless it is renewed
}

// Same reports whether the node has the same for every demand at both moments.
func (a Stamp) Same(b Stamp) bool {
	a.until, b.until = 0, 0
	return a == b && a != (Stamp{})
}

// Stamper reads the stamps of some nodes, which it knows by their positions. It is for one
// goroutine.
type Stamper struct {
	s         *NodeCache
	nodes     []string
	cells     []*cell
	forgotten uint64 // cells, when these were found
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

// Begin takes the time for the stamps that follow, and finds nodes again that went and came back.
func (p *Stamper) Begin() {
	p.now = p.s.clock.Now()
	if p.forgotten != p.s.cells.forgotten.Load() {
		p.find()
	}
}

// Holds reports whether the node still has what it had at the stamp. It does not look at Leases
// before they can have run out: one that comes back, gets another owner or is deleted changes
// the revision.
func (p *Stamper) Holds(node int, at *Stamp, info fwk.NodeInfo) bool {
	return p.now.UnixNano() < at.until && at.generation == info.GetGeneration() && at.revision == p.cells[node].candidate.Revision.Load()
}

// Stamp reads the stamp of a node. It does not allocate. A node where something is kept for
// nominated pods has none: the scheduling queue ends a nomination without a word.
func (p *Stamper) Stamp(node int, info fwk.NodeInfo) Stamp {
	x := p.cells[node]
	revision := x.candidate.Revision.Load() // before anything is read, so that a change meanwhile shows
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
