// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"context"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/nodestate"
)

// ErrReasonListRefused is what a pod shows for the moment until it is tried again.
const ErrReasonListRefused = "the nodes with the best GPUs are refused by other plugins; all nodes are tried next"

// PostFilter runs before preemption. If other plugins refused every node that
// PreFilter listed, nobody need be evicted yet: the pod is tried again at once, on
// all nodes.
func (p *Plugin) PostFilter(_ context.Context, state fwk.CycleState, pod *v1.Pod, _ fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	c := nodestate.ReadCycle(state)
	if c == nil || !c.Narrowed {
		// All nodes were looked at; once something changed a list is worth a try.
		p.State().EndWiden(pod.UID)
		return nil, fwk.NewStatus(fwk.Unschedulable)
	}
	p.State().Widen(p.logger, pod, p.Handle())
	return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, ErrReasonListRefused)
}
