// SPDX-License-Identifier: Apache-2.0

package testobj

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// gpuResource is the resource name of NVIDIA's device plugin.
const gpuResource v1.ResourceName = "nvidia.com/gpu"

// Container returns a container with a request and limit of GPUs. Zero sets nothing.
func Container(name string, gpus int) v1.Container {
	c := v1.Container{Name: name}
	if gpus > 0 {
		setBoth(&c, gpuResource, devices(gpus))
	}
	return c
}

// Sidecar returns an init container that keeps running, with GPUs.
func Sidecar(name string, gpus int) v1.Container {
	c := Container(name, gpus)
	c.RestartPolicy = new(v1.ContainerRestartPolicyAlways)
	return c
}

// Containers replaces the containers.
func (p *PodWrapper) Containers(containers ...v1.Container) *PodWrapper {
	p.pod.Spec.Containers = containers
	return p
}

// InitContainers replaces the init containers.
func (p *PodWrapper) InitContainers(containers ...v1.Container) *PodWrapper {
	p.pod.Spec.InitContainers = containers
	return p
}

// Image sets the first container's image.
func (p *PodWrapper) Image(image string) *PodWrapper {
	p.pod.Spec.Containers[0].Image = image
	return p
}

// GPUs sets the first container's request and limit of GPUs. Zero sets nothing.
func (p *PodWrapper) GPUs(n int) *PodWrapper {
	if n > 0 {
		setBoth(&p.pod.Spec.Containers[0], gpuResource, devices(n))
	}
	return p
}

// CPU sets the first container's request and limit of CPU.
func (p *PodWrapper) CPU(quantity string) *PodWrapper { return p.Resource(v1.ResourceCPU, quantity) }

// Memory sets the first container's request and limit of memory.
func (p *PodWrapper) Memory(quantity string) *PodWrapper {
	return p.Resource(v1.ResourceMemory, quantity)
}

// Resource sets the first container's request and limit of a resource.
func (p *PodWrapper) Resource(name v1.ResourceName, quantity string) *PodWrapper {
	setBoth(&p.pod.Spec.Containers[0], name, resource.MustParse(quantity))
	return p
}

// Request sets the first container's request of a resource, without a limit.
func (p *PodWrapper) Request(name v1.ResourceName, quantity string) *PodWrapper {
	set(&p.pod.Spec.Containers[0].Resources.Requests, name, resource.MustParse(quantity))
	return p
}

// Limit sets the first container's limit of a resource, without a request.
func (p *PodWrapper) Limit(name v1.ResourceName, quantity string) *PodWrapper {
	set(&p.pod.Spec.Containers[0].Resources.Limits, name, resource.MustParse(quantity))
	return p
}

func devices(n int) resource.Quantity { return *resource.NewQuantity(int64(n), resource.DecimalSI) }

func setBoth(c *v1.Container, name v1.ResourceName, q resource.Quantity) {
	set(&c.Resources.Requests, name, q)
	set(&c.Resources.Limits, name, q)
}

func set(list *v1.ResourceList, name v1.ResourceName, q resource.Quantity) {
	if *list == nil {
		*list = v1.ResourceList{}
	}
	(*list)[name] = q
}
