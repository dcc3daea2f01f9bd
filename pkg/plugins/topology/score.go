// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"context"
	"math"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/nodestate"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// PreScore finds the best ring and latency any candidate can give, which the
// scores are relative to.
func (p *Plugin) PreScore(_ context.Context, state fwk.CycleState, _ *v1.Pod, nodes []fwk.NodeInfo) *fwk.Status {
	c := p.Cycle(state)
	if c == nil {
		return fwk.NewStatus(fwk.Skip)
	}
	c.BestRing, c.BestLatency = 0, math.MaxInt64
	for _, info := range nodes {
		_, u := p.View(state, info)
		if u == nil {
			continue
		}
		if r, ok := u.Rate(c.Demand.Request); ok {
			c.BestRing = max(c.BestRing, r.Ring)
			c.BestLatency = min(c.BestLatency, r.Latency)
		}
	}
	return nil
}

// Raw scores carry the weighted terms in steps of rawStep and, below that, how
// tight the fit is, so that equal terms go to the tightest fit.
const (
	rawStep  = 100
	rawScale = 1_000 // steps of one point of the final score
)

// Score rates the node's best choice: relative ring bandwidth, relative latency
// and the residual capacity it costs, each with its weight. NormalizeScore brings
// it to 0–100.
func (p *Plugin) Score(_ context.Context, state fwk.CycleState, _ *v1.Pod, info fwk.NodeInfo) (int64, *fwk.Status) {
	c, u := p.View(state, info)
	if u == nil {
		return 0, nil
	}
	r, ok := u.Rate(c.Demand.Request)
	if !ok {
		return 0, nil
	}
	return p.raw(r, c), nil
}

func (p *Plugin) raw(r nodestate.Rating, c *nodestate.Cycle) int64 {
	bandwidth, latency := 1.0, 1.0 // one GPU has no ring: nothing to lose
	if r.GPUs > 1 && c.BestRing > 0 {
		bandwidth = float64(r.Ring) / float64(c.BestRing)
	}
	if r.GPUs > 1 && r.Latency > 0 {
		latency = float64(c.BestLatency) / float64(r.Latency)
	}
	terms := p.bandwidthWeight*bandwidth + p.latencyWeight*latency + p.fragmentationWeight*(1-min(1, max(0, r.Lost)))
	steps := int64(math.Round(100 * rawScale * terms / (p.bandwidthWeight + p.latencyWeight + p.fragmentationWeight)))
	return steps*rawStep + int64(nvtopo.MaxGPUs-min(r.FreeAfter, nvtopo.MaxGPUs))
}

// ScoreExtensions returns the normaliser.
func (p *Plugin) ScoreExtensions() fwk.ScoreExtensions { return p }

// NormalizeScore brings raw scores to 0–100. Only the best raw score gets the
// last point, so that a tie of the terms is broken by the tightest fit.
func (p *Plugin) NormalizeScore(_ context.Context, _ fwk.CycleState, _ *v1.Pod, scores fwk.NodeScoreList) *fwk.Status {
	var best int64
	for i := range scores {
		best = max(best, scores[i].Score)
	}
	for i := range scores {
		s := min(scores[i].Score/(rawStep*rawScale), fwk.MaxNodeScore-1)
		if scores[i].Score == best && best > 0 {
			s++
		}
		scores[i].Score = s
	}
	return nil
}
