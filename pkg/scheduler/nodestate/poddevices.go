// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/topologies"
)

// PodDevices finds the devices of bound pods: from their annotations, and where these are uncertain from
// kubelet's record, as the node's agent publishes it.
type PodDevices struct {
	clock       clock.PassiveClock
	topologies  *topologies.Cache
	leases      *nodelease.Table
	lists       *FirstLists
	listers     *listers
	memo        *allocation.Memo // of annotations
	onMalformed func(pod *v1.Pod, err error)
}

// allocationOf returns the pod's allocation if its annotation can be read and names this node and this
// pod. An annotation on an unbound pod, on a copy of another pod or from another node is ignored. A
// malformed annotation is reported once and leaves the pod's devices untracked.
func (p *PodDevices) allocationOf(pod *v1.Pod, node string) *allocation.Allocation {
	if pod.Spec.NodeName != node {
		return nil
	}
	if a := p.readAllocation(pod); a != nil && a.Is(pod.UID, node) {
		return a
	}
	return nil
}

// Disowned returns why the allocation annotation of a bound pod is not used for it: it names another pod
// or node. It returns nil if the annotation is used, is absent, or cannot be read, which is reported
// already.
func (p *PodDevices) Disowned(pod *v1.Pod) error {
	if pod.Spec.NodeName == "" {
		return nil
	}
	switch a := p.readAllocation(pod); {
	case a == nil:
		return nil
	case a.PodUID != pod.UID:
		return fmt.Errorf("annotation %s is of the pod with UID %.64q, this one's is %q", allocation.Key, a.PodUID, pod.UID)
	case a.Node != pod.Spec.NodeName:
		return fmt.Errorf("annotation %s is of node %.64q, the pod is on %q", allocation.Key, a.Node, pod.Spec.NodeName)
	}
	return nil
}

// readAllocation returns the allocation in the pod's annotation, for any pod and node, or nil.
func (p *PodDevices) readAllocation(pod *v1.Pod) *allocation.Allocation {
	text, ok := pod.Annotations[allocation.Key]
	if !ok {
		return nil
	}
	a, fresh, err := p.memo.Parse(pod.UID, text)
	if err != nil {
		p.malformed(pod, err)
	}
	if fresh && p.listers.pods.pod(pod.Namespace, pod.Name, pod.UID) == nil {
		// Only the running cycle's snapshot still has the pod; podGone ran before.
		p.memo.Forget(pod.UID)
	}
	return a
}

// devicesOf returns the devices of one resource that a bound pod has: according to its annotation, and
// without one to kubelet's record.
func (p *PodDevices) devicesOf(pod *v1.Pod, n *usage.Node, accel *usage.Accel) nvtopo.Mask {
	if a := p.allocationOf(pod, n.Name); a != nil {
		return a.Mask(accel.Resource, accel.Graph)
	}
	var set nvtopo.Mask
	for _, r := range n.Records[pod.UID] {
		for i := range accel.Graph.GPUs {
			if r.Resource == accel.Resource && slices.Contains(r.GPUs, accel.Graph.GPUs[i].UUID) {
				set |= nvtopo.MaskOf(i)
			}
		}
	}
	return set
}

func (p *PodDevices) malformed(pod *v1.Pod, err error) {
	malformedAllocations.Inc()
	p.onMalformed(pod, err)
}
