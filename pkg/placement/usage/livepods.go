// SPDX-License-Identifier: Apache-2.0

package usage

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

// LivePods are pods of the API server with their requests: the Pods of an Input outside of a scheduling
// cycle.
type LivePods []LivePod

// LivePod is one of LivePods. Make it with NewLivePod.
type LivePod struct {
	Object   *v1.Pod
	requests Amounts
}

// NewLivePod computes a pod's requests.
func NewLivePod(p *v1.Pod) LivePod {
	return LivePod{Object: p, requests: AmountsOf(resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{}))}
}

// Amounts returns the pod's requests; do not change them.
func (p *LivePod) Amounts() *Amounts { return &p.requests }

// Len is the number of pods.
func (p LivePods) Len() int { return len(p) }

// Pod returns the i-th pod.
func (p LivePods) Pod(i int) *v1.Pod { return p[i].Object }

// Requests returns the requests of the i-th pod.
func (p LivePods) Requests(i int) Requests { return &p[i].requests }

// Amounts are resources in the scheduler's units: thousandths of a CPU, bytes, and numbers of everything
// else.
type Amounts struct {
	milliCPU, memory, storage, pods int64
	scalars                         map[v1.ResourceName]int64
}

// AmountsOf converts a list of resources.
func AmountsOf(list v1.ResourceList) Amounts {
	out := Amounts{scalars: make(map[v1.ResourceName]int64, len(list))}
	for name, q := range list {
		switch name {
		case v1.ResourceCPU:
			out.milliCPU = q.MilliValue()
		case v1.ResourceMemory:
			out.memory = q.Value()
		case v1.ResourceEphemeralStorage:
			out.storage = q.Value()
		case v1.ResourcePods:
			out.pods = q.Value()
		default:
			out.scalars[name] = q.Value()
		}
	}
	return out
}

// GetMilliCPU returns thousandths of a CPU.
func (a *Amounts) GetMilliCPU() int64 { return a.milliCPU }

// GetMemory returns bytes of memory.
func (a *Amounts) GetMemory() int64 { return a.memory }

// GetEphemeralStorage returns bytes of ephemeral storage.
func (a *Amounts) GetEphemeralStorage() int64 { return a.storage }

// GetScalarResources returns the numbers of everything else; do not change them.
func (a *Amounts) GetScalarResources() map[v1.ResourceName]int64 { return a.scalars }

// Pods returns the resource "pods": for a node, the number of pods that it takes.
func (a *Amounts) Pods() int64 { return a.pods }

// AnnotationReader reads allocations from pods' annotations alone. It is for copies of bound pods that are
// as new as the topologies used with them.
type AnnotationReader struct{}

// Allocation returns the pod's own allocation on the node. A pod whose annotation cannot be read has
// untracked devices.
func (AnnotationReader) Allocation(pod *v1.Pod, node string) *allocation.Allocation {
	a, err := allocation.Of(pod, node)
	if err != nil {
		return nil
	}
	return a
}

// Stored returns nil: there is no newer copy.
func (AnnotationReader) Stored(*v1.Pod) *v1.Pod { return nil }

// Nominated returns nil: no allocations are kept.
func (AnnotationReader) Nominated(types.UID) *allocation.Allocation { return nil }
