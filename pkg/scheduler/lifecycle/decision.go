// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"cmp"
	"math"
	"strconv"

	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/nodeindex"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

// decide records why a node is chosen, before its GPUs are: the present offers of this node and of the
// best others, and how many nodes were refused.
func (p *Plugin) decide(c *Cycle, info fwk.NodeInfo) {
	c.Decision = nil
	if !c.Demand.HasGPUs() {
		return
	}
	name := info.Node().Name
	d := &allocation.Decision{
		Version: allocation.DecisionVersion, Node: name, Scored: c.Scored, Refused: c.refused.ByName(),
	}
	score := 0
	for i := range c.Ranked {
		if c.Ranked[i].Node == name {
			score = c.Ranked[i].Score
		}
	}
	chosen, ok := p.candidate(c, info, score)
	if !ok {
		return // by count: there is no set to describe
	}
	d.Band, d.BestRing = chosen.band, chosen.bestRing
	d.Candidates = append(d.Candidates, chosen.Candidate)
	d.Millis = chosen.millis
	if c.Left != nil && c.Left.Millis < d.Millis {
		left := *c.Left
		left.Model = p.modelOf(left.Node, c.Demand.Resources[0].Name)
		d.Left = &left
	}
	for i := range c.Ranked {
		r := &c.Ranked[i]
		if r.Node == "" || r.Node == name {
			continue
		}
		other, err := p.Snapshot().Get(r.Node)
		if err != nil {
			continue // the node is gone
		}
		if offer, ok := p.candidate(c, other, r.Score); ok {
			d.Candidates = append(d.Candidates, offer.Candidate)
		}
	}
	c.Decision = d
}

// byPlan records that the GPUs are those of a gang's plan. The plan was made by other criteria, and all
// other nodes are refused because of it.
func byPlan(d *allocation.Decision, a *allocation.Allocation) {
	if d == nil {
		return
	}
	d.Gang, d.Scored, d.Refused, d.Candidates, d.Millis, d.Left = true, 0, nil, nil, 0, nil
	if a.Ring == nil { // one GPU: any is as good
		d.Band = nodeindex.BandBest
		return
	}
	d.Band = nodeindex.BandOfRing(a.Ring.Bandwidth, d.BestRing)
	d.Candidates = []allocation.Candidate{{Node: d.Node, Ring: a.Ring.Bandwidth}}
}

// offered is a candidate, with values that are recorded for the chosen one only.
type offered struct {
	allocation.Candidate
	band     int
	bestRing int64
	millis   float64 // of an all-reduce
}

// modelOf returns the GPU model of a node; empty if it is not known.
func (p *Plugin) modelOf(node, resource string) string {
	if n := p.nodes.Node(node); n != nil {
		if accel := n.Accel(resource); accel != nil {
			return nvtopo.ModelLabel(accel.Graph.Model())
		}
	}
	return ""
}

// millis rounds to three digits, to keep the record short.
func millis(seconds float64) float64 {
	ms, _ := strconv.ParseFloat(strconv.FormatFloat(1000*seconds, 'g', 3, 64), 64) // a formatted number can be parsed
	return ms
}

// candidate returns the offer of a node for the pod. Without a score there was no other node to compare
// with.
func (p *Plugin) candidate(c *Cycle, info fwk.NodeInfo, score int) (out offered, ok bool) {
	u := p.nodes.View(&c.Demand, info, p.Snapshot())
	if u == nil {
		return out, false
	}
	o, ok := placement.Rate(u, c.Demand.Request)
	if !ok {
		return out, false
	}
	tables := u.Node.Accel(c.Demand.Resources[0].Name).Tables
	out = offered{Candidate: allocation.Candidate{Node: info.Node().Name, Ring: o.Ring, Score: score}, band: o.Band}
	if k := o.Set.Len(); k > 1 {
		out.bestRing = tables.Best(k)
		out.millis = millis(o.Seconds(k, cmp.Or(c.Demand.MessageBytes, nodeindex.DefaultBytes)))
	}
	if score > 0 {
		out.Terms = terms(&c.Best, &o)
	}
	return out, true
}

// terms returns the parts of the score in thousandths.
func terms(best *nodeindex.Best, o *nodeindex.Offer) *allocation.Terms {
	bandwidth, latency, kept := best.Parts(o)
	return &allocation.Terms{permille(bandwidth), permille(latency), permille(kept)}
}

func permille(v float64) int { return int(math.Round(1000 * min(max(v, 0), 1))) }

// decisionOf returns the encoded record of why a choice was made, or "".
func decisionOf(state fwk.CycleState, a *allocation.Allocation) string {
	c := ReadCycle(state)
	if c == nil || c.Decision == nil || c.Decision.Node != a.Node {
		return ""
	}
	d := *c.Decision
	d.At = a.Assumed
	text, err := d.Encode()
	if err != nil {
		klog.Background().Error(err, "The reason for a choice is not written", "node", a.Node)
		return ""
	}
	return text
}
