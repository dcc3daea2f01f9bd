// SPDX-License-Identifier: Apache-2.0

package computepool

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/units"
)

// The extended resources of a pool whose spec lists none.
var (
	gpuResources = []v1.ResourceName{"nvidia.com/gpu", "amd.com/gpu"}
	npuResources = []v1.ResourceName{"huawei.com/Ascend910B", "habana.ai/gaudi"}
)

// Resources returns the extended resources of a pool's whole devices, whether or not the pool gives out
// parts of them. The first is usually the most frequent one.
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

// Units returns the units of a pool's quota, one for each resource that Kueue counts. A pool that gives
// out parts of devices has one unit. All others count whole devices.
func Units(pool *v1alpha1.ComputePool) []units.Unit {
	if u, sliced := units.Sliced(pool.Spec.Virtualization); sliced {
		return []units.Unit{u}
	}
	resources := Resources(pool)
	out := make([]units.Unit, 0, len(resources))
	for _, r := range resources {
		out = append(out, units.Unit{Resource: string(r), PerDevice: 1})
	}
	return out
}

type resourceName = v1.ResourceName

// Amounts is a count for each unit's resource. Absent resources are 0.
type Amounts map[resourceName]int64

// countIn returns the amount of a unit in a list of resources.
func countIn(list v1.ResourceList, u units.Unit) int64 {
	var n int64
	for r, q := range list {
		n += u.Count(string(r), min(max(q.Value(), 0), maxOnNode))
	}
	return n
}

// heldBy returns the amounts that one pod of a spec holds. In a template, unlike in a pod, a limit may
// be set without its request.
func heldBy(spec *v1.PodSpec, all []units.Unit) Amounts {
	pod := &v1.Pod{Spec: v1.PodSpec{InitContainers: onlyDevices(spec.InitContainers, all), Containers: onlyDevices(spec.Containers, all)}}
	if len(pod.Spec.InitContainers)+len(pod.Spec.Containers) == 0 {
		return nil
	}
	requests := resource.PodRequests(pod, resource.PodResourcesOptions{})
	out := Amounts{}
	for _, u := range all {
		if n := countIn(requests, u); n > 0 {
			out[resourceName(u.Resource)] = n
		}
	}
	return out
}

// onlyDevices returns the containers that request devices, reduced to those requests.
func onlyDevices(containers []v1.Container, all []units.Unit) []v1.Container {
	var out []v1.Container
	for i := range containers {
		c := &containers[i]
		requests := v1.ResourceList{}
		for _, list := range []v1.ResourceList{c.Resources.Requests, c.Resources.Limits} {
			for r, q := range list {
				if slices.ContainsFunc(all, func(u units.Unit) bool { return u.Count(string(r), 1) > 0 }) {
					requests[r] = q
				}
			}
		}
		if len(requests) > 0 {
			out = append(out, v1.Container{Name: c.Name, RestartPolicy: c.RestartPolicy, Resources: v1.ResourceRequirements{Requests: requests}})
		}
	}
	return out
}
