// SPDX-License-Identifier: Apache-2.0

package usage

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/nvtopo/nvtopo/pkg/allocation"
)

// Amounts are resources as the scheduler counts them, for whoever is no scheduler.
type Amounts struct {
	MilliCPU, Memory, Storage, PodCount int64 // memory and storage in bytes
	Scalars                             map[v1.ResourceName]int64
}

// AmountsOf reads a list of resources, such as what a node has to give.
func AmountsOf(list v1.ResourceList) Amounts {
	out := Amounts{Scalars: make(map[v1.ResourceName]int64, len(list))}
	for name, q := range list {
		switch name {
		case v1.ResourceCPU:
			out.MilliCPU = q.MilliValue()
		case v1.ResourceMemory:
			out.Memory = q.Value()
		case v1.ResourceEphemeralStorage:
			out.Storage = q.Value()
		case v1.ResourcePods:
			out.PodCount = q.Value()
		default:
			out.Scalars[name] = q.Value()
		}
	}
	return out
}

// GetMilliCPU returns thousandths of a CPU.
func (a *Amounts) GetMilliCPU() int64 { return a.MilliCPU }

// GetMemory returns bytes.
func (a *Amounts) GetMemory() int64 { return a.Memory }

// GetEphemeralStorage returns bytes.
func (a *Amounts) GetEphemeralStorage() int64 { return a.Storage }

// GetScalarResources returns everything else, not to be changed.
func (a *Amounts) GetScalarResources() map[v1.ResourceName]int64 { return a.Scalars }

// LivePod is a pod with what it requests.
type LivePod struct {
	Object *v1.Pod
	Amounts
}

// NewLivePod reads what a pod requests.
func NewLivePod(p *v1.Pod) LivePod {
	return LivePod{Object: p, Amounts: AmountsOf(resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{}))}
}

// PodList is the pods of a node for whoever read them from the API server.
type PodList []LivePod

// Len is how many there are.
func (p PodList) Len() int { return len(p) }

// Pod is one of them.
func (p PodList) Pod(i int) *v1.Pod { return p[i].Object }

// Requests is what one requests.
func (p PodList) Requests(i int) Requests { return &p[i].Amounts }

// Annotated is a Reader that knows of pods what their annotations say: all there is to know for
// whoever is no scheduler.
type Annotated struct{}

// Allocation is the pod's own on the node; a pod with one that cannot be read counts by the
// number of its devices.
func (Annotated) Allocation(pod *v1.Pod, node string) *allocation.Allocation {
	a, err := allocation.Of(pod, node)
	if err != nil {
		return nil
	}
	return a
}

// Stored knows no other copy of a pod.
func (Annotated) Stored(*v1.Pod) *v1.Pod { return nil }

// Nominated knows nothing that is kept.
func (Annotated) Nominated(types.UID) *allocation.Allocation { return nil }
