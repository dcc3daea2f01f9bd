// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"sync/atomic"

	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/nvtopo/nodeindex"
	"github.com/nvtopo/nvtopo/pkg/placement"
)

// CycleKey is where both plugins keep their common view of a scheduling cycle;
// whichever PreFilter runs first writes it.
const CycleKey fwk.StateKey = "nvtopo.dev/cycle"

// Cycle is the view of one scheduling cycle. PreFilter and PreScore write it,
// each before anything else runs; it holds nothing that a dry run changes, so a
// clone is the same object.
type Cycle struct {
	Demand placement.Demand
	// FilteredBy names the plugin whose Filter answers for both.
	FilteredBy string
	// Member: the pod is one of a gang that another plugin places as a whole. Planned is the
	// node that the gang's plan has for it; empty if there is no plan, or none when the cycle
	// began.
	Member  bool
	Planned string
	// Narrowed: PreFilter listed the nodes to look at. ListedBy is what it rated them
	// by: their scores must not depend on which others are listed.
	Narrowed bool
	ListedBy nodeindex.Best
	// refused: the plugin that filters has refused some node; atomic, since nodes are
	// filtered side by side.
	refused uint32
	// Band is the best band of the nodes that passed, and Best what the scores in it
	// are relative to; set by PreScore.
	Band int
	Best nodeindex.Best
	// Spares decide between nodes of equal score, by node; set by PreScore.
	Spares map[string]nodeindex.Spare
}

var _ fwk.StateData = &Cycle{}

// Clone returns the same view.
func (c *Cycle) Clone() fwk.StateData { return c }

// Refuse marks that the plugin that filters refused a node.
func (c *Cycle) Refuse() {
	if atomic.LoadUint32(&c.refused) == 0 {
		atomic.StoreUint32(&c.refused, 1)
	}
}

// Refused reports whether it did.
func (c *Cycle) Refused() bool { return atomic.LoadUint32(&c.refused) != 0 }

// ReadCycle returns the cycle's view, or nil where no PreFilter of ours wrote one.
func ReadCycle(state fwk.CycleState) *Cycle {
	d, err := state.Read(CycleKey)
	if err != nil {
		return nil
	}
	c, _ := d.(*Cycle)
	return c
}
