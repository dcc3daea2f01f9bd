// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/nodeindex"
)

// Ours is the name of the policy that is the scheduler's own choice.
const Ours = "ours"

// policy chooses node and GPUs for one pod, and is told of every change.
type policy interface {
	place(gpus int) (node int, set nvtopo.Mask, ok bool)
	changed(node int)
}

// mishaps counts the failures between a choice of node and its GPUs.
type mishaps struct {
	rejections, failures int
	unfit                int // plans for gangs that a node could not carry out
}

// Policies lists the names Config.Policy may have: "ours" and every pair of a rule
// for the node and a rule for its GPUs.
func Policies() []string {
	out := []string{Ours}
	for _, n := range nodeRules() {
		for _, p := range pickRules() {
			out = append(out, n.name+"+"+p.name)
		}
	}
	return out
}

// newPolicy returns the policy of the configuration, which tells m of its mishaps.
func newPolicy(c *Config, s *state, m *mishaps) (policy, error) {
	if c.Policy == Ours {
		return newOurs(c, s), nil
	}
	nodeName, pickName, _ := strings.Cut(c.Policy, "+")
	rules, picks := nodeRules(), pickRules()
	n := slices.IndexFunc(rules, func(r nodeRule) bool { return r.name == nodeName })
	p := slices.IndexFunc(picks, func(r pickRule) bool { return r.name == pickName })
	if n < 0 || p < 0 {
		return nil, fmt.Errorf("no policy %q, want one of %s", c.Policy, strings.Join(Policies(), ", "))
	}
	if picks[p].mostGPUs > 0 {
		for i := range s.nodes {
			if got := s.nodes[i].kind.tables.Graph().Len(); got > picks[p].mostGPUs {
				return nil, fmt.Errorf("%s walks all partitions and takes machines of at most %d GPUs; node %q has %d",
					pickName, picks[p].mostGPUs, c.Nodes[i].Name, got)
			}
		}
	}
	return &twoSteps{state: s, choose: rules[n].choose, pick: picks[p].make(c.Seed), mishaps: m}, nil
}

// ours is the scheduler's choice across nodes.
type ours struct {
	state *state
	index *nodeindex.Index
	order nodeindex.Order
	site  *site // nil without a fabric
	equal []nodeindex.Candidate
}

func newOurs(c *Config, s *state) *ours {
	o := &ours{state: s, index: nodeindex.NewIndex(), order: nodeindex.DefaultOrder()}
	if c.Order != nil {
		o.order = *c.Order
	}
	for i := range s.nodes {
		o.changed(i)
	}
	return o
}

func (o *ours) place(gpus int) (int, nvtopo.Mask, bool) {
	d := nodeindex.Demand{GPUs: gpus, Constraint: o.state.sizes.constraints[o.state.sizes.at(gpus)]}
	if o.site != nil {
		return o.beside(&d)
	}
	at, offer, ok := o.index.Best(&d, &o.order)
	return at, offer.Set, ok
}

// beside is place beside gangs, on nodes that are open to the job.
func (o *ours) beside(d *nodeindex.Demand) (node int, set nvtopo.Mask, ok bool) {
	o.equal = slices.DeleteFunc(o.index.Candidates(d, o.equal[:0]), o.allClosed)
	if len(o.equal) == 0 {
		return 0, 0, false
	}
	best, _ := o.index.Top(o.equal, d, &o.order, 0)
	for tied := range o.index.InOrder(best) {
		if node, ok = o.firstOpen(tied); ok {
			m, _ := o.index.Machine(node)
			offer, ok := m.Offer(d)
			return node, offer.Set, ok
		}
	}
	return 0, 0, false
}

// firstOpen is the lowest node of some that are equal which is open to the job.
func (o *ours) firstOpen(tied *nodeindex.Tied) (node int, ok bool) {
	node = len(o.state.nodes)
	for n := range tied.Nodes() {
		if !o.isClosed(n) {
			node = min(node, n)
		}
	}
	return node, node < len(o.state.nodes)
}

// isClosed reports whether a node is closed to the job that is looked at.
func (o *ours) isClosed(node int) bool {
	return o.site.closed != nil && o.site.closed[o.site.number[node]]
}

// allClosed reports whether all nodes of a candidate are.
func (o *ours) allClosed(c nodeindex.Candidate) bool {
	if o.site.closed == nil {
		return false
	}
	for n := range c.Bucket.Nodes() {
		if !o.isClosed(n) {
			return false
		}
	}
	return true
}

func (o *ours) changed(at int) {
	n := &o.state.nodes[at]
	o.index.Put(at, nodeindex.Machine{Tables: n.kind.tables, Healthy: n.healthy, Free: n.free(), Degraded: n.kind.degraded, Kind: n.kind.number, Singles: n.singles > 0})
	o.index.Run(at, n.pods)
}
