// SPDX-License-Identifier: Apache-2.0

package schedtest

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
)

// gpuResource is the resource name of NVIDIA's device plugin.
const gpuResource v1.ResourceName = "nvidia.com/gpu"

// PodWrapper is upstream's builder of a pod with methods for tests of GPUs.
type PodWrapper struct{ *st.PodWrapper }

// Pod starts a pod in the namespace "default" whose UID is its name. It has one container, "main",
// without requests.
func Pod(name string) *PodWrapper {
	return &PodWrapper{st.MakePod().Name(name).Namespace(metav1.NamespaceDefault).UID(name).Containers([]v1.Container{{Name: "main"}})}
}

// PodFrom starts with a copy of a pod.
func PodFrom(pod *v1.Pod) *PodWrapper {
	return &PodWrapper{&st.PodWrapper{Pod: *pod.DeepCopy()}}
}

// With applies functions of the test that change the pod.
func (p *PodWrapper) With(changes ...func(*v1.Pod)) *PodWrapper {
	for _, change := range changes {
		change(p.Obj())
	}
	return p
}

// Namespace sets the namespace.
func (p *PodWrapper) Namespace(s string) *PodWrapper {
	p.PodWrapper.Namespace(s)
	return p
}

// UID sets the UID.
func (p *PodWrapper) UID(s string) *PodWrapper {
	p.PodWrapper.UID(s)
	return p
}

// Label sets a label.
func (p *PodWrapper) Label(key, value string) *PodWrapper {
	p.PodWrapper.Label(key, value)
	return p
}

// Annotation sets an annotation.
func (p *PodWrapper) Annotation(key, value string) *PodWrapper {
	p.PodWrapper.Annotation(key, value)
	return p
}

// Annotations adds annotations to those the pod has.
func (p *PodWrapper) Annotations(annotations map[string]string) *PodWrapper {
	p.PodWrapper.Annotations(annotations)
	return p
}

// Created sets the time of creation.
func (p *PodWrapper) Created(at time.Time) *PodWrapper {
	p.CreationTimestamp(metav1.NewTime(at))
	return p
}

// Terminating makes the pod a deleted one whose grace period ends at a time.
func (p *PodWrapper) Terminating(at time.Time) *PodWrapper {
	p.DeletionTimestamp = new(metav1.NewTime(at))
	return p
}

// GracePeriod sets the pod's termination grace period.
func (p *PodWrapper) GracePeriod(d time.Duration) *PodWrapper {
	p.TerminationGracePeriodSeconds(int64(d / time.Second))
	return p
}

// Node binds the pod to a node.
func (p *PodWrapper) Node(name string) *PodWrapper {
	p.PodWrapper.Node(name)
	return p
}

// NodeSelector restricts the pod to nodes with these labels.
func (p *PodWrapper) NodeSelector(labels map[string]string) *PodWrapper {
	p.PodWrapper.NodeSelector(labels)
	return p
}

// Priority sets the priority.
func (p *PodWrapper) Priority(n int32) *PodWrapper {
	p.PodWrapper.Priority(n)
	return p
}

// PriorityClass sets the name of the priority class.
func (p *PodWrapper) PriorityClass(name string) *PodWrapper {
	p.Spec.PriorityClassName = name
	return p
}

// Scheduler sets the scheduler's name.
func (p *PodWrapper) Scheduler(name string) *PodWrapper {
	p.SchedulerName(name)
	return p
}

// Phase sets the phase.
func (p *PodWrapper) Phase(phase v1.PodPhase) *PodWrapper {
	p.PodWrapper.Phase(phase)
	return p
}

// Containers replaces the containers.
func (p *PodWrapper) Containers(containers ...v1.Container) *PodWrapper {
	p.Spec.Containers = containers
	return p
}

// GPUs sets the first container's request and limit of GPUs. Zero sets nothing.
func (p *PodWrapper) GPUs(n int) *PodWrapper {
	if n == 0 {
		return p
	}
	return p.set(gpuResource, *resource.NewQuantity(int64(n), resource.DecimalSI), true)
}

// CPU sets the first container's request and limit of CPU.
func (p *PodWrapper) CPU(quantity string) *PodWrapper { return p.Resource(v1.ResourceCPU, quantity) }

// Memory sets the first container's request and limit of memory.
func (p *PodWrapper) Memory(quantity string) *PodWrapper {
	return p.Resource(v1.ResourceMemory, quantity)
}

// Resource sets the first container's request and limit of a resource.
func (p *PodWrapper) Resource(name v1.ResourceName, quantity string) *PodWrapper {
	return p.set(name, resource.MustParse(quantity), true)
}

// Request sets the first container's request of a resource, without a limit.
func (p *PodWrapper) Request(name v1.ResourceName, quantity string) *PodWrapper {
	return p.set(name, resource.MustParse(quantity), false)
}

func (p *PodWrapper) set(name v1.ResourceName, q resource.Quantity, limited bool) *PodWrapper {
	r := &p.Spec.Containers[0].Resources
	if r.Requests == nil {
		r.Requests = v1.ResourceList{}
	}
	r.Requests[name] = q
	if limited {
		if r.Limits == nil {
			r.Limits = v1.ResourceList{}
		}
		r.Limits[name] = q
	}
	return p
}
