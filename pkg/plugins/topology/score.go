// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"context"
	"iter"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/nvtopo/nodeindex"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
	"github.com/nvtopo/nvtopo/pkg/scheduler/lifecycle"
)

const (
	// bandFloor is the lowest score of a node that is one of the best in reserve, preference and cost; all
	// other nodes have 0. Times this plugin's weight it must be more than all other scorers of the profile
	// can add up to. Otherwise they could outvote better links, and the scheduler refuses to start. The 20
	// points above it, at a weight of 25, equal 100 points at a weight of 5 of other plugins.
	bandFloor = nodeindex.LeastBest
	// softFloor is bandFloor for pods with soft terms, which decide between such nodes: the 2 points above
	// it, at a weight of 25, are less than half of one fulfilled term, at a weight of 2.
	softFloor = 98
	// tie is the weight of a raw score of 1 beside the Spare of a node, which decides between equals. Raw
	// scores are below 2^24 and Spares below 2^39, so that both fit.
	tie = nodeindex.NoSpare
)

// PreScore finds, among the nodes that passed, those between which the score decides, and their best ring,
// best latency and greatest loss, to which the scores are relative. A pod without GPUs is scored only if
// there are nodes with GPUs to keep it off.
func (p *Plugin) PreScore(_ context.Context, state fwk.CycleState, _ *v1.Pod, nodes []fwk.NodeInfo) *fwk.Status {
	c := p.Cycle(state)
	if c == nil {
		if c = lifecycle.ReadCycle(state); c == nil || c.Narrowed || !p.narrowing.KeepOff || !p.preSelector.HasBoth() {
			return fwk.NewStatus(fwk.Skip)
		}
		return nil
	}
	c.Best, c.Behind = nodeindex.Best{}, nil
	if c.Demand.HasGPUs() {
		c.Behind = p.behind(nodes)
		c.Preferences = preferences(c.Demand.Request, nodes)
		c.Best = p.compare(state, c, nodes)
		if left, ok := c.Best.LeftFaster(); ok && !c.Narrowed {
			c.Leave(nodes[left.Node].Node().Name, left)
		}
		c.Spares = p.preSelector.Spares(c.Demand.Request.Resources[0].Name, nodes)
	}
	return nil
}

// behind returns those of some nodes whose kubelets refuse pods; nil if there are none, or no others.
func (p *Plugin) behind(nodes []fwk.NodeInfo) map[string]bool {
	refusals := p.refusals
	if !refusals.Any() {
		return nil
	}
	out := map[string]bool{}
	for _, info := range nodes {
		if name := info.Node().Name; refusals.Refuses(name) {
			out[name] = true
		}
	}
	if len(out) == 0 || len(out) == len(nodes) {
		return nil
	}
	return out
}

// preferences returns how much the pod prefers each node for its hardware; nil if it has no such terms.
func preferences(r *podrequest.Request, nodes []fwk.NodeInfo) map[string]int64 {
	if r.Hardware == nil {
		return nil
	}
	out := make(map[string]int64, len(nodes))
	for _, info := range nodes {
		out[info.Node().Name] = r.Prefers(info.Node())
	}
	return out
}

// compare adds the nodes' offers to a comparison. In a cycle with a node list all nodes are included: the
// score of a node must not depend on which others are listed.
func (p *Plugin) compare(state fwk.CycleState, c *lifecycle.Cycle, nodes []fwk.NodeInfo) nodeindex.Best {
	best := c.ListedBy
	if !c.Narrowed {
		d := nodeindex.Demand{GPUs: c.Demand.Request.Resources[0].Count, Bytes: c.Demand.MessageBytes}
		best = nodeindex.NoBest(nodeindex.TermsOf(&d, &p.narrowing.Order, p.preSelector.Reserved(&c.Demand, &p.narrowing.Order)))
	}
	best.Any = false // reserve, preference and cost are compared among the nodes that passed
	for i, o := range p.offers(state, c, nodes) {
		best.Lead(o, i)
	}
	for _, o := range p.offers(state, c, nodes) {
		if best.Among(o) {
			best.Add(o)
		}
	}
	return best
}

// offers yields each node's offer for the pod, valid until the next one.
func (p *Plugin) offers(state fwk.CycleState, c *lifecycle.Cycle, nodes []fwk.NodeInfo) iter.Seq2[int, *nodeindex.Offer] {
	return func(yield func(int, *nodeindex.Offer) bool) {
		for i, info := range nodes {
			_, u := p.View(state, info)
			if u == nil || c.Behind[info.Node().Name] {
				continue
			}
			o, ok := placement.Rate(u, c.Demand.Request)
			o.Preference = c.Preferences[info.Node().Name]
			if ok && !yield(i, &o) {
				return
			}
		}
	}
}

// Score rates the node's best set if it is one of the best in reserve, preference and cost, else it is 0.
// The rating adds relative ring bandwidth, relative latency and relative loss, each with its weight. Of
// equal nodes the one with the least spare GPUs around the set is the best. A node whose kubelet refuses
// pods gets 0 as long as there are others.
func (p *Plugin) Score(_ context.Context, state fwk.CycleState, _ *v1.Pod, info fwk.NodeInfo) (int64, *fwk.Status) {
	c, u := p.View(state, info)
	if c == nil {
		return p.withoutGPUs(info), nil
	}
	if u == nil || c.Behind[info.Node().Name] {
		return 0, nil
	}
	o, ok := placement.Rate(u, c.Demand.Request)
	o.Preference = c.Preferences[info.Node().Name]
	if !ok || !c.Best.Among(&o) {
		return 0, nil
	}
	return ranked(p.narrowing.Order.Weights.Raw(&o, &c.Best), c.Spares[info.Node().Name]), nil
}

// ranked is above 0, and greater for the greater raw score; for equal ones, for the lesser Spare.
func ranked(raw int64, spare nodeindex.Spare) int64 { return (1+raw)*tie + tie - 1 - int64(spare) }

// rank keeps the best scores for the record of the decision.
func rank(c *lifecycle.Cycle, scores fwk.NodeScoreList) {
	for i := range scores {
		if raw := scores[i].Score/tie - 1; raw >= 0 {
			c.Rank(scores[i].Name, int(raw*100/nodeindex.Point))
		}
	}
}

// withoutGPUs prefers nodes without GPUs for a pod that requests none.
func (p *Plugin) withoutGPUs(info fwk.NodeInfo) int64 {
	for _, r := range p.Profile.Options.Resources {
		if info.GetAllocatable().GetScalarResources()[v1.ResourceName(r)] > 0 {
			return 0
		}
	}
	return fwk.MaxNodeScore * nodeindex.Point * tie
}

// ScoreExtensions returns the plugin, which normalises its scores.
func (p *Plugin) ScoreExtensions() fwk.ScoreExtensions { return p }

// NormalizeScore maps the raw scores to floor–100. Only the best of them gets the last point, so a tie is
// broken by the tightest fit, and then by Spare.
func (p *Plugin) NormalizeScore(_ context.Context, state fwk.CycleState, _ *v1.Pod, scores fwk.NodeScoreList) *fwk.Status {
	c, floor := lifecycle.ReadCycle(state), int64(bandFloor)
	if c != nil && c.Demand.Request != nil && c.Demand.SoftTerms {
		floor = softFloor
	}
	step := fwk.MaxNodeScore * nodeindex.Point / (fwk.MaxNodeScore - floor) // raw points for one point above the floor
	var best int64
	for i := range scores {
		best = max(best, scores[i].Score)
	}
	if c != nil {
		rank(c, scores)
	}
	for i := range scores {
		if scores[i].Score == 0 {
			continue
		}
		s := floor + min(scores[i].Score/(step*tie), fwk.MaxNodeScore-floor-1)
		if scores[i].Score == best {
			s++
		}
		scores[i].Score = s
	}
	return nil
}
