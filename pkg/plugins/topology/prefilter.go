// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"context"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/nodestate"
)

// PreFilter reads the pod and narrows the cycle to the nodes it does best on: the
// best band any node can give now, and of it those with the best score. A list
// that turns out to be wrong is put right by PostFilter.
func (p *Plugin) PreFilter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	_, status := p.Plugin.PreFilter(ctx, state, pod, nodes)
	if !status.IsSuccess() && !status.IsSkip() {
		return nil, status
	}
	c := nodestate.ReadCycle(state)
	names, ratedBy := p.State().Candidates(&c.Demand, pod, &p.narrowing, p.Handle(), nodes)
	if names == nil {
		return nil, status
	}
	c.Narrowed, c.ListedBy = true, ratedBy
	return &fwk.PreFilterResult{NodeNames: names}, nil
}
