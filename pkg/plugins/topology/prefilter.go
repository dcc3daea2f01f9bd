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
	names := p.State().Candidates(&c.Demand, pod, &p.narrowing, p.Handle(), nodes)
	if names == nil {
		return nil, status
	}
	c.Narrowed = true
	return &fwk.PreFilterResult{NodeNames: names}, nil
}

// PostFilter runs before preemption. If other plugins refused every node that
// PreFilter listed, nobody need be evicted yet: the pod is tried again at once, on
// all nodes.
func (p *Plugin) PostFilter(_ context.Context, state fwk.CycleState, pod *v1.Pod, _ fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	c := nodestate.ReadCycle(state)
	if c == nil || !c.Narrowed {
		// All nodes were looked at; once something changed a list is worth a try.
		p.State().Narrow(pod.UID)
		return nil, fwk.NewStatus(fwk.Unschedulable)
	}
	p.State().Widen(p.logger, pod, p.Handle())
	return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, ErrReasonListRefused)
}

// ErrReasonListRefused is what a pod shows for the moment until it is tried again.
const ErrReasonListRefused = "the nodes with the best GPUs are refused by other plugins; all nodes are tried next"

// EventsToRegister lists what can make a pod fit that did not.
func (p *Plugin) EventsToRegister(ctx context.Context) ([]fwk.ClusterEventWithHint, error) {
	if p.narrowing.Limit > 0 {
		if err := p.CheckPostFilterOrder(); err != nil {
			return nil, err
		}
	}
	return p.Plugin.EventsToRegister(ctx)
}
