// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// Filter says whether the node can give the pod now what it asks for. The result is
// Unschedulable if an eviction could help, and UnschedulableAndUnresolvable if even the
// empty node could not serve the pod.
func (p *Plugin) Filter(_ context.Context, state fwk.CycleState, _ *v1.Pod, info fwk.NodeInfo) *fwk.Status {
	c := p.Cycle(state)
	if c == nil || c.FilteredBy != p.name {
		return nil
	}
	v := p.state.Judge(&c.Demand, info, p.Snapshot())
	if v.Reason == 0 {
		return nil
	}
	c.Refuse()
	code := fwk.Unschedulable
	if v.Never {
		code = fwk.UnschedulableAndUnresolvable
	}
	return fwk.NewStatus(code, v.Reason.Text(c.Demand.Request))
}
