// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/nvtopo/nodeindex"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

// CycleKey is the key under which both plugins keep their common view of a scheduling cycle; the first
// PreFilter that runs writes it.
const CycleKey fwk.StateKey = "nvtopo.dev/cycle"

// Cycle is the view of one scheduling cycle. PreFilter and PreScore write it, each before anything else
// runs; it has nothing that a dry run changes, so a clone is the same object.
type Cycle struct {
	Demand placement.Demand
	// Owner names the plugin that filters, reserves and writes for the pod. In a dry run
	// of GangPlacement it is that, and both plugins skip the pod.
	Owner string
	// Member: the pod is one of a gang that another plugin places as a whole. Planned is its node in the
	// gang's plan; empty if there is no plan, or none when the cycle began.
	Member  bool
	Planned string
	// Narrowed: PreFilter listed the nodes to consider. ListedBy is the best offer by which it rated them:
	// their scores must not depend on which others are listed.
	Narrowed bool
	ListedBy nodeindex.Best
	// Left is a node with faster links that was left to larger pods; nil if there is none. Set by
	// PreFilter or PreScore.
	Left *allocation.Left
	// refused are the nodes that the owner's Filter refused, in parallel.
	refused placement.Tally
	// Best is the best offer that the nodes that passed are compared with; set by PreScore.
	Best nodeindex.Best
	// Spares decide between nodes of equal score, by node; set by PreScore.
	Spares map[string]nodeindex.Spare
	// Behind are nodes to which others are preferred, because their kubelets refuse pods; nil if there are
	// none, or no others. Set by PreScore.
	Behind map[string]bool
	// Preferences are the pod's preferences for nodes because of their hardware, by node; nil if it has
	// none; set by PreScore.
	Preferences map[string]int64
	// Ranked are the nodes with the best scores, the best first, and Scored is how many had one; set by
	// NormalizeScore. Decision is why the node was chosen; set by Reserve.
	Ranked   [Ranks]Ranked
	Scored   int
	Decision *allocation.Decision
}

// Leave marks that a node is left to larger pods.
func (c *Cycle) Leave(node string, left nodeindex.Left) {
	c.Left = &allocation.Left{Node: node, Millis: millis(left.Seconds), PodsOf: left.PodsOf}
}

// Ranks is how many nodes the record of a decision has at most, beside the chosen one.
const Ranks = 3

// Ranked is a node and TopologyAware's score for it, in hundredths of 100 points.
type Ranked struct {
	Node  string
	Score int
}

// Rank adds a node to the best, if it is one of them. Of equal ones the first stays.
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

// Refuse records that the owner's Filter refused a node.
func (c *Cycle) Refuse(why placement.Reason) { c.refused.Add(why) }

// Refused reports whether the owner's Filter refused a node.
func (c *Cycle) Refused() bool { return c.refused.Any() }

// RefusedFor reports whether the owner's Filter refused a node for this reason.
func (c *Cycle) RefusedFor(why placement.Reason) bool { return c.refused.Has(why) }

// ReadCycle returns the cycle's view, or nil if no PreFilter of these plugins wrote one.
func ReadCycle(state fwk.CycleState) *Cycle {
	d, err := state.Read(CycleKey)
	if err != nil {
		return nil
	}
	c, _ := d.(*Cycle)
	return c
}
