// SPDX-License-Identifier: Apache-2.0

package numa

import (
	"context"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/placement"
)

// neutral is the score of a node whose set gets neither bonus nor penalty.
const neutral = fwk.MaxNodeScore / 2

// PreScore skips pods without GPUs and without NUMA alignment.
func (p *Plugin) PreScore(_ context.Context, state fwk.CycleState, _ *v1.Pod, _ []fwk.NodeInfo) *fwk.Status {
	if p.Cycle(state) == nil {
		return fwk.NewStatus(fwk.Skip)
	}
	return nil
}

// Score adds the bonus if GPUs, CPUs and memory of the best set are on one NUMA node. It subtracts the
// penalty for every further NUMA node of the set. CPUs or memory that must come from elsewhere are treated
// as one more.
func (p *Plugin) Score(_ context.Context, state fwk.CycleState, _ *v1.Pod, info fwk.NodeInfo) (int64, *fwk.Status) {
	c, u := p.View(state, info)
	if u == nil {
		return 0, nil
	}
	a, ok := placement.Align(u, c.Demand.Request)
	if !ok {
		return 0, nil
	}
	return p.score(a), nil
}

func (p *Plugin) score(a placement.Alignment) int64 {
	spans := int64(a.Nodes)
	if !a.Local {
		spans++
	}
	s := neutral - p.crossNUMAPenalty*(spans-1)
	if spans == 1 {
		s += p.sameNUMABonus
	}
	return min(fwk.MaxNodeScore, max(0, s))
}

// ScoreExtensions returns nil: the scores are already between 0 and 100.
func (p *Plugin) ScoreExtensions() fwk.ScoreExtensions { return nil }
