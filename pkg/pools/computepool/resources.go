// SPDX-License-Identifier: Apache-2.0

package computepool

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
)

// The extended resources of a pool that names none.
var (
	gpuResources = []v1.ResourceName{"nvidia.com/gpu", "amd.com/gpu"}
	npuResources = []v1.ResourceName{"huawei.com/Ascend910B", "habana.ai/gaudi"}
)

// Resources are the extended resources that count in a pool, the first one first.
func Resources(pool *v1alpha1.ComputePool) []v1.ResourceName {
	if len(pool.Spec.Resources) > 0 {
		out := make([]v1.ResourceName, 0, len(pool.Spec.Resources))
		for _, r := range pool.Spec.Resources {
			out = append(out, v1.ResourceName(r))
		}
		return out
	}
	switch pool.Spec.PoolType {
	case v1alpha1.PoolNPU:
		return slices.Clone(npuResources)
	case v1alpha1.PoolMixed:
		return slices.Concat(gpuResources, npuResources)
	case v1alpha1.PoolGPU:
	}
	return slices.Clone(gpuResources)
}

// Amounts are devices by resource. What is absent is 0.
type Amounts map[v1.ResourceName]int64

// podDevices counts the devices that one pod of a spec holds. In a template, unlike in a pod, a
// limit may be written without its request.
func podDevices(spec *v1.PodSpec, resources []v1.ResourceName) Amounts {
	pod := &v1.Pod{Spec: v1.PodSpec{
		InitContainers: onlyDevices(spec.InitContainers, resources),
		Containers:     onlyDevices(spec.Containers, resources),
	}}
	total := resource.PodRequests(pod, resource.PodResourcesOptions{})
	out := Amounts{}
	for _, r := range resources {
		if q := total[r]; !q.IsZero() {
			out[r] = min(max(q.Value(), 0), maxOnNode)
		}
	}
	return out
}

// onlyDevices are containers as far as devices go.
func onlyDevices(containers []v1.Container, resources []v1.ResourceName) []v1.Container {
	out := make([]v1.Container, 0, len(containers))
	for i := range containers {
		c := &containers[i]
		requests := v1.ResourceList{}
		for _, r := range resources {
			q, ok := c.Resources.Limits[r]
			if !ok {
				q, ok = c.Resources.Requests[r]
			}
			if ok {
				requests[r] = q
			}
		}
		out = append(out, v1.Container{Name: c.Name, RestartPolicy: c.RestartPolicy, Resources: v1.ResourceRequirements{Requests: requests}})
	}
	return out
}
