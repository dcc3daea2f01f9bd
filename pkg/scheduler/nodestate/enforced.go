// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
)

// Enforced reports whether a node's agent is alive now. Only then is its published copy of kubelet's
// record current.
func (p *PodDevices) Enforced(node string) bool {
	n := p.topologies.Node(node)
	return n != nil && n.Enforced(p.clock.Now())
}

// Unproven returns the allocation of a bound pod that was made on an enforced node and cannot be
// verified, because the node has no live agent and the last published record does not show these GPUs.
// Otherwise it returns nil.
func (p *PodDevices) Unproven(pod *v1.Pod) *allocation.Allocation {
	a := p.allocationOf(pod, pod.Spec.NodeName)
	if a == nil || !a.Enforced {
		return nil
	}
	if n := p.topologies.Node(pod.Spec.NodeName); n == nil && !p.silent(pod.Spec.NodeName) ||
		n != nil && (n.Enforced(p.clock.Now()) || gaveAll(a, n.Records[pod.UID])) {
		return nil
	}
	return a
}

// silent reports whether a node has neither a NodeGPUTopology, which had the agent's record, nor a live
// agent that would publish one again.
func (p *PodDevices) silent(node string) bool {
	if !p.lists.Synced() || p.leases.Fresh(nodelease.AgentPrefix+node, p.clock.Now()) {
		return false
	}
	return p.topologies.Known(node).Object() == ""
}

// gaveAll reports whether the records have exactly the chosen GPUs.
func gaveAll(a *allocation.Allocation, records []usage.Record) bool {
	given := map[string][]string{} // resource -> ids
	for _, r := range records {
		given[r.Resource] = append(given[r.Resource], r.GPUs...)
	}
	for i := range a.Containers {
		name := a.Containers[i].Resource
		if !sets.New(given[name]...).Equal(sets.New(a.GPUs(name)...)) {
			return false
		}
	}
	return true
}
