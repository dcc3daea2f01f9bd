// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate"
)

// Filter reports whether the pod fits the node now. The result is Unschedulable if an eviction could
// help, and UnschedulableAndUnresolvable if even the empty node could not serve the pod.
func (p *Plugin) Filter(_ context.Context, state fwk.CycleState, _ *v1.Pod, info fwk.NodeInfo) *fwk.Status {
	c := p.Cycle(state)
	if c == nil || c.Owner != p.name {
		return nil
	}
	if c.Demand.HasGPUs() && p.cordons.Cordoned(info.Node().Name) { // Reserve would refuse it, and no other node be tried
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, nodestate.ErrCordoned.Error())
	}
	v := p.judge(c, info)
	if v.Reason == 0 {
		return nil
	}
	c.Refuse(v.Reason)
	code := fwk.Unschedulable
	if v.Never {
		code = fwk.UnschedulableAndUnresolvable
	}
	return fwk.NewStatus(code, v.Reason.Text(c.Demand.Request))
}

// judge accepts only the planned node for a pod of a gang with a plan: others may have room, too, but the
// place that the plan keeps for the pod would not be used. An eviction would not help.
func (p *Plugin) judge(c *Cycle, info fwk.NodeInfo) placement.Verdict {
	if c.Planned == "" {
		return p.nodes.Judge(&c.Demand, info, p.Snapshot())
	}
	if info.Node().Name != c.Planned {
		return placement.Verdict{Reason: placement.PlannedElsewhere, Never: true}
	}
	reason, ok := p.gangReserver.JudgePlanned(&c.Demand, info)
	if !ok { // it is planned without an allocation
		return p.nodes.Judge(&c.Demand, info, p.Snapshot())
	}
	return placement.Verdict{Reason: reason, Never: true}
}
