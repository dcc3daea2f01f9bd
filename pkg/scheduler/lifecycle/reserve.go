// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/pools/units"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate"
)

// Reserve chooses the devices on the node and records the choice. If that is no longer possible since
// Filter, the pod is unschedulable on this node for now.
func (p *Plugin) Reserve(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodeName string) *fwk.Status {
	if !p.owns(state) {
		return nil
	}
	p.shared.assumed.reserve(pod.UID)
	// The scheduler's cache would keep such a pod for ever.
	if p.allocations.Gone(pod.UID) {
		return fwk.NewStatus(fwk.Unschedulable, placement.PodGone.String())
	}
	if units.AsksForDevices(pod) && !p.cordons.Assume(pod, nodeName) {
		return fwk.NewStatus(fwk.Unschedulable, nodestate.ErrCordoned.Error())
	}
	c := p.Cycle(state)
	if c == nil {
		return nil
	}
	// A gang's member that has its place usually waits at Permit, and must not be late there.
	if _, planned := p.gangReserver.Planned(pod.UID); !planned {
		p.binder.AwaitWrites(ctx)
	}
	snapshot := p.Snapshot()
	info, err := snapshot.Get(nodeName)
	if err != nil {
		return fwk.AsStatus(err)
	}
	p.decide(c, info)
	a, reason := p.choose(c, pod, info, snapshot)
	if reason != 0 {
		return fwk.NewStatus(fwk.Unschedulable, reason.Text(c.Demand.Request))
	}
	if a == nil && c.Demand.HasGPUs() {
		// For PostBind, which must not check again: the graph may be valid by then.
		state.Write(byCountKey, byCount(p.nodes.CheckGraph(info.Node()).String()))
	} else {
		state.Delete(byCountKey) // left by an earlier Reserve in this cycle
	}
	if lv := klog.FromContext(ctx).V(4); lv.Enabled() && a != nil {
		lv.Info("Chose devices", "pod", klog.KObj(pod), "node", klog.KRef("", nodeName), "containers", a.Containers, "cpuset", a.CPUSet)
	}
	return nil
}

// choose takes the pod's allocation in its gang's plan, if there was a plan when the cycle began, or
// chooses one.
func (p *Plugin) choose(c *Cycle, pod *v1.Pod, info fwk.NodeInfo, snapshot fwk.NodeInfoLister) (*allocation.Allocation, placement.Reason) {
	if c.Planned != "" {
		a, ended := p.gangReserver.ReservePlanned(pod.UID, info.Node().Name)
		switch {
		case ended:
			return nil, placement.PlanEnded
		case a != nil:
			byPlan(c.Decision, a)
			return a, placement.Fits
		}
	}
	return p.allocations.Assume(&c.Demand, pod, info, snapshot)
}

// Unreserve takes the allocation back. It does not change the cycle's view, because the same cycle may
// reserve again.
func (p *Plugin) Unreserve(_ context.Context, state fwk.CycleState, pod *v1.Pod, nodeName string) {
	if !p.owns(state) {
		return
	}
	endBinding(state)
	p.shared.assumed.forget(pod.UID)
	p.cordons.Forget(pod.UID, nodeName)
	p.allocations.Forget(pod.UID, nodeName)
}
