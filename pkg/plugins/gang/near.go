// SPDX-License-Identifier: Apache-2.0

package gang

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/scheduler/gangstate"
)

// nearKey marks a cycle in which PreFilter listed the nodes near a gang.
const nearKey fwk.StateKey = "nvtopo.dev/near"

// near limits the cycle of a pod in no gang to the nodes with room that are nearest to the gang that it
// names. The other plugins choose among them. It is only a preference: if other plugins refused all of
// them, the next cycle tries all nodes.
func (p *Plugin) near(state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) *fwk.PreFilterResult {
	to := p.gangs.NodesNear(pod)
	if len(to) == 0 || !p.lists.Synced() || p.preSelector.BeginRetry(pod.UID) {
		return nil
	}
	snapshot := p.handle.SnapshotSharedLister().NodeInfos()
	p.allocations.Sweep(snapshot)
	names, err := p.planner.Near(&gangstate.Question{
		Turn: &gangstate.Turn{}, View: p.fabric.Current(), Nodes: nodes, Snapshot: snapshot, Demand: p.demand, Volumes: p.volumes.of,
		Closed: func(node string) bool { return p.keptFrom(snapshot, pod, node) },
	}, pod, to)
	if err != nil || len(names) == 0 {
		return nil // TopologyAware reports the pod's errors
	}
	state.Write(nearKey, asked{})
	return &fwk.PreFilterResult{NodeNames: sets.New(names...)}
}

// retryFar has a pod tried on all nodes if its list of near ones was refused.
func (p *Plugin) retryFar(logger klog.Logger, state fwk.CycleState, pod *v1.Pod) *fwk.Status {
	if _, err := state.Read(nearKey); err != nil {
		return fwk.NewStatus(fwk.Unschedulable)
	}
	p.preSelector.RetryOnAllNodes(logger, pod, p.handle)
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "the nodes near the gang of "+gangrequest.NearKey+" are refused; all nodes are tried next")
}

// keptFrom reports whether a pod in no gang would take capacity that is kept on a node.
func (p *Plugin) keptFrom(snapshot fwk.NodeInfoLister, pod *v1.Pod, node string) bool {
	if len(p.preSelector.Closed().Kept()[node]) == 0 {
		return false
	}
	d, err := p.demand(pod)
	info, gone := snapshot.Get(node)
	if err != nil || gone != nil {
		return false
	}
	k, _ := p.preSelector.KeptFrom(pod, d.Request, info)
	return k != nil
}
