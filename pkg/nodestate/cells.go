// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"iter"
	"sync"
	"sync/atomic"

	"github.com/nvtopo/nvtopo/pkg/nodestate/candidates"
	"github.com/nvtopo/nvtopo/pkg/nodestate/reservations"
	"github.com/nvtopo/nvtopo/pkg/nodestate/topologies"
	"github.com/nvtopo/nvtopo/pkg/nodestate/waking"
	"github.com/nvtopo/nvtopo/pkg/usage"
)

// cell holds everything known by node name. It outlives graph and Node object.
type cell struct {
	name  string
	entry *topologies.Entry
	usage atomic.Pointer[usage.Usage]
	// candidate is the index's part of it. Its Revision counts changes of graph and of
	// either kind of reservation; it is part of the usage memo's key, too.
	candidate candidates.Node
	waking    waking.Node       // the waker's part of it
	reserved  reservations.Node // the part of the table of reservations
	busy      busySince
}

// cells maps node name -> cell. None is ever taken out.
type cells struct {
	byName  sync.Map
	newCell func(name string) *cell
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

// ensure returns the cell of a node, made if need be.
func (c *cells) ensure(name string) *cell {
	if x := c.get(name); x != nil {
		return x
	}
	x, _ := c.byName.LoadOrStore(name, c.newCell(name))
	stored, _ := x.(*cell)
	return stored
}
