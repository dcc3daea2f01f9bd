// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nvtopo/nvtopo/pkg/placement/usage"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/candidates"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/reservations"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/topologies"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/waking"
)

// cell is the node entry: everything known under a node name. It outlives graph and Node object for a
// while; see forgetNodes.
type cell struct {
	name  string
	entry *topologies.Entry
	usage atomic.Pointer[usage.Usage]
	// candidate is the index's part. Its Revision counts changes of the graph and of assumed and nominated
	// allocations; it is also part of the key of the remembered usage.
	candidate candidates.Node
	waking    waking.Node       // the waker's part of it
	reserved  reservations.Node // the part of the table of reservations
	busy      busySince

	goneSince time.Time // when forgetNodes first found the node gone; used only there
}

// cells maps node name -> cell. A node has one cell at a time. A node that returns after its cell was
// forgotten gets another one, so code that keeps a cell beyond a cycle compares forgotten.
type cells struct {
	byName    sync.Map
	newCell   func(name string) *cell
	forgotten atomic.Uint64 // number of cells removed

	mu sync.Mutex // held while a cell is added or removed
}

func newCells(newCell func(name string) *cell) *cells { return &cells{newCell: newCell} }

// get returns the cell of a node, or nil.
func (c *cells) get(name string) *cell {
	x, _ := c.byName.Load(name)
	found, _ := x.(*cell)
	return found
}

// all yields every cell by its node's name.
func (c *cells) all() iter.Seq2[string, *cell] {
	return func(yield func(string, *cell) bool) {
		c.byName.Range(func(key, value any) bool {
			name, _ := key.(string)
			x, _ := value.(*cell)
			return yield(name, x)
		})
	}
}

// ensure returns the cell of a node and makes it if necessary.
func (c *cells) ensure(name string) *cell {
	if x := c.get(name); x != nil {
		return x
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if x := c.get(name); x != nil {
		return x
	}
	x := c.newCell(name)
	x.candidate.Revision.Store(c.forgotten.Load() << 32) // greater than every revision of an earlier cell of this name
	c.byName.Store(name, x)
	return x
}

// forget removes a cell if may returns true. No cell is made meanwhile.
func (c *cells) forget(x *cell, may func() bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !may() {
		return false
	}
	c.byName.Delete(x.name)
	c.forgotten.Add(1)
	return true
}
