// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"context"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/scheduler/lifecycle"
)

// PreFilter reads the pod and limits the cycle to the best nodes for it: those with the best score among
// those between which the score decides. PostFilter corrects a list that turns out to be wrong.
func (p *Plugin) PreFilter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	_, status := p.Plugin.PreFilter(ctx, state, pod, nodes)
	if !status.IsSuccess() && !status.IsSkip() {
		return nil, status
	}
	c := lifecycle.ReadCycle(state)
	if c.Member || p.Profile.IsNear(pod) { // this list could leave out the nodes that GangPlacement lists
		return nil, status
	}
	names, ratedBy := p.preSelector.Candidates(&c.Demand, pod, &p.narrowing, p.Handle(), nodes)
	if names == nil {
		return nil, status
	}
	c.Narrowed, c.ListedBy = true, ratedBy
	if left, ok := ratedBy.LeftFaster(); ok {
		c.Leave(nodes[left.Node].Node().Name, left)
	}
	return &fwk.PreFilterResult{NodeNames: names}, nil
}
