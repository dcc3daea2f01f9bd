// SPDX-License-Identifier: Apache-2.0

package usage

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

// LivePods are pods as the API server has them, with what they request: an Input for whoever
// has no scheduling cycle.
type LivePods []LivePod

// LivePod is one of LivePods. Make it with NewLivePod.
type LivePod struct {
	Object   *v1.Pod
	requests Amounts
}

// NewLivePod works out what a pod requests.
func NewLivePod(p *v1.Pod) LivePod {
	return LivePod{Object: p, requests: AmountsOf(resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{}))}
}

// Amounts returns what the pod requests; do not change it.
func (p *LivePod) Amounts() *Amounts { return &p.requests }

// Len is the number of pods.
func (p LivePods) Len() int { return len(p) }

// Pod returns the i-th pod.
func (p LivePods) Pod(i int) *v1.Pod { return p[i].Object }

// Requests returns what the i-th pod requests.
func (p LivePods) Requests(i int) Requests { return &p[i].requests }

// Amounts are resources as the scheduler counts them: thousandths of a CPU, bytes, and numbers
// of everything else.
type Amounts struct {
	milliCPU, memory, storage, pods int64
	scalars                         map[v1.ResourceName]int64
}

// AmountsOf reads a list of resources.
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

// Pods is how many pods the amounts are for: of a node, how many it takes.
func (a *Amounts) Pods() int64 { return a.pods }

// AnnotationReader says of single pods what their annotations say. It is for copies that are
// as new as the topologies beside them, of pods that are bound.
type AnnotationReader struct{}

// Allocation is the pod's own allocation on the node. A pod whose annotation cannot be read
// counts by the number of its devices.
func (AnnotationReader) Allocation(pod *v1.Pod, node string) *allocation.Allocation {
	a, err := allocation.Of(pod, node)
	if err != nil {
		return nil
	}
	return a
}

// Stored returns nil: there is no newer copy.
func (AnnotationReader) Stored(*v1.Pod) *v1.Pod { return nil }

// Nominated returns nil: nothing is kept.
func (AnnotationReader) Nominated(types.UID) *allocation.Allocation { return nil }
