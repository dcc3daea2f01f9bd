// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/nvtopo/nodeindex"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

// CycleKey is where both plugins keep their common view of a scheduling cycle;
// whichever PreFilter runs first writes it.
const CycleKey fwk.StateKey = "nvtopo.dev/cycle"

// Cycle is the view of one scheduling cycle. PreFilter and PreScore write it,
// each before anything else runs; it holds nothing that a dry run changes, so a
// clone is the same object.
type Cycle struct {
	Demand placement.Demand
	// Owner names the plugin that filters, reserves and writes for the pod. In a dry run
	// of GangPlacement it is that, and both plugins skip the pod.
	Owner string
	// Member: the pod is one of a gang that another plugin places as a whole. Planned is the
	// node that the gang's plan has for it; empty if there is no plan, or none when the cycle
	// began.
	Member  bool
	Planned string
	// Narrowed: PreFilter listed the nodes to look at. ListedBy is what it rated them
	// by: their scores must not depend on which others are listed.
	Narrowed bool
	ListedBy nodeindex.Best
	// Left is a node with faster links that was left to larger pods; nil if there is none. Set by
	// PreFilter or PreScore.
	Left *allocation.Left
	// refused are the nodes that the owner's Filter refused, side by side.
	refused placement.Tally
	// Best is what the offers of the nodes that passed are compared by; set by PreScore.
	Best nodeindex.Best
	// Spares decide between nodes of equal score, by node; set by PreScore.
	Spares map[string]nodeindex.Spare
	// Behind are nodes that others are preferred to, because their kubelets refuse pods; nil if there are
	// none, or no others. Set by PreScore.
	Behind map[string]bool
	// Preferences are how much the pod would like nodes for their hardware, by node; nil if it does not
	// say; set by PreScore.
	Preferences map[string]int64
	// Ranked are the nodes with the best scores, the best first, and Scored is how many had one;
	// set by NormalizeScore. Decision says why the node was chosen; set by Reserve.
	Ranked   [Ranks]Ranked
	Scored   int
	Decision *allocation.Decision
}

// Leave marks that a node is left to larger pods.
func (c *Cycle) Leave(node string, left nodeindex.Left) {
	c.Left = &allocation.Left{Node: node, Millis: millis(left.Seconds), PodsOf: left.PodsOf}
}

// Ranks is how many nodes a record of a decision has at most, beside the chosen one.
const Ranks = 3

// Ranked is a node and TopologyAware's score for it, in hundredths of 100 points.
type Ranked struct {
	Node  string
	Score int
}

// Rank takes a node into the best, if it is one of them. Of equal ones the first stays.
func (c *Cycle) Rank(node string, score int) {
	c.Scored++
	for i := range c.Ranked {
		if c.Ranked[i].Node == "" || c.Ranked[i].Score < score {
			copy(c.Ranked[i+1:], c.Ranked[i:])
			c.Ranked[i] = Ranked{node, score}
			return
		}
	}
}

var _ fwk.StateData = &Cycle{}

// Clone returns the same view.
func (c *Cycle) Clone() fwk.StateData { return c }

// Refuse marks that the owner's Filter refused a node.
func (c *Cycle) Refuse(why placement.Reason) { c.refused.Add(why) }

// Refused reports whether it did.
func (c *Cycle) Refused() bool { return c.refused.Any() }

// RefusedFor reports whether it refused one for a reason.
func (c *Cycle) RefusedFor(why placement.Reason) bool { return c.refused.Has(why) }

// ReadCycle returns the cycle's view, or nil where no PreFilter of ours wrote one.
func ReadCycle(state fwk.CycleState) *Cycle {
	d, err := state.Read(CycleKey)
	if err != nil {
		return nil
	}
	c, _ := d.(*Cycle)
	return c
}
