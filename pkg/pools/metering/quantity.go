// SPDX-License-Identifier: Apache-2.0

package metering

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
)

const (
	// whole is a device in thousandths.
	whole = 1000
	// slicesOfGPU is into how many slices MIG divides a GPU.
	slicesOfGPU = 7
	// migPrefix begins the resources of MIG, such as nvidia.com/mig-3g.40gb.
	migPrefix = "nvidia.com/mig-"
	// sharedSuffix ends the resource of devices that take turns, where NVIDIA's device plugin is
	// told to rename them.
	sharedSuffix = ".shared"
	// replicasSuffix ends the label by which NVIDIA's feature discovery says how many containers
	// take turns on each device of a resource, such as nvidia.com/gpu.replicas.
	replicasSuffix = ".replicas"
)

// DeviceOf is the resource of the whole devices that a resource is parts of: nvidia.com/gpu for
// MIG's slices and for GPUs that are shared, and otherwise the resource itself.
func DeviceOf(resource string) string {
	if strings.HasPrefix(resource, migPrefix) {
		return "nvidia.com/gpu"
	}
	return strings.TrimSuffix(resource, sharedSuffix)
}

// Quantity is how many devices a count of a resource is, to a thousandth and rounded down for each
// one: a MIG slice of 3g is 3 of 7, and one of replicas that take turns is 1 of them.
func Quantity(resource string, count, replicas int64) v1alpha1.Decimal {
	one := int64(whole)
	if n, ok := migSlices(resource); ok {
		one = n * whole / slicesOfGPU
	}
	if replicas > 1 {
		one /= replicas
	}
	total := one * count
	text := fmt.Sprintf("%d.%03d", total/whole, total%whole)
	return v1alpha1.Decimal(strings.TrimSuffix(strings.TrimRight(text, "0"), "."))
}

// migSlices is how many of a GPU's slices one device of a resource of MIG has, such as 3 of
// nvidia.com/mig-3g.40gb.
func migSlices(resource string) (int64, bool) {
	profile, ok := strings.CutPrefix(resource, migPrefix)
	if !ok {
		return 0, false
	}
	// 1c.3g.40gb is a part of a 3g.40gb that cannot be told apart from the others of it.
	for part := range strings.SplitSeq(profile, ".") {
		if digits, ok := strings.CutSuffix(part, "g"); ok {
			n, err := strconv.ParseInt(digits, 10, 64)
			return n, err == nil && n >= 1 && n <= slicesOfGPU
		}
	}
	return 0, false
}

// replicasOn is how many containers take turns on each device of a resource on a node: what the
// node says, else what its pool asks for.
func replicasOn(labels map[string]string, pool *v1alpha1.ComputePool, resource string) int64 {
	if text, ok := labels[strings.TrimSuffix(resource, sharedSuffix)+replicasSuffix]; ok {
		if n, err := strconv.ParseInt(text, 10, 32); err == nil && n >= 1 {
			return n
		}
	}
	v := pool.Spec.Virtualization
	if v != nil && v.Enabled && v.Strategy == v1alpha1.StrategyTimeSlicing {
		return int64(max(v.Replicas, 1))
	}
	return 1
}

// resourcesOf are the resources of whole devices that count in a pool.
func resourcesOf(pool *v1alpha1.ComputePool) []string {
	if len(pool.Spec.Resources) > 0 {
		return pool.Spec.Resources
	}
	gpus := []string{"nvidia.com/gpu", "amd.com/gpu"}
	npus := []string{"huawei.com/Ascend910B", "habana.ai/gaudi"}
	switch pool.Spec.PoolType {
	case v1alpha1.PoolNPU:
		return npus
	case v1alpha1.PoolMixed:
		return append(gpus, npus...)
	case v1alpha1.PoolGPU:
	}
	return gpus
}

// counts says whether a resource is one of the pool's, or parts of one.
func counts(pool *v1alpha1.ComputePool, resource string) bool {
	of := resourcesOf(pool)
	return slices.Contains(of, resource) || slices.Contains(of, DeviceOf(resource))
}

// extended are the extended resources in a list of requests, by name.
func extended(requests v1.ResourceList) []string {
	var names []string
	for name, q := range requests {
		if strings.Contains(string(name), "/") && !strings.Contains(string(name), "kubernetes.io/") && q.Value() > 0 {
			names = append(names, string(name))
		}
	}
	slices.Sort(names)
	return names
}

// asksForDevices says whether a container of a pod asks for an extended resource.
func asksForDevices(pod *v1.Pod) bool {
	asks := func(c v1.Container) bool {
		return len(extended(c.Resources.Requests)) > 0 || len(extended(c.Resources.Limits)) > 0
	}
	return slices.ContainsFunc(pod.Spec.Containers, asks) || slices.ContainsFunc(pod.Spec.InitContainers, asks)
}
