// SPDX-License-Identifier: Apache-2.0

package units

import (
	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
)

const (
	// MilliGPU is the resource that Kueue converts MIG slices to: thousandths of a GPU. No node and no
	// pod has it; Kueue computes it from the slices by its configuration (resources.transformations).
	MilliGPU = v1alpha1.GroupName + "/milli-gpu"
	// SharedGPU is the resource of a time-sliced GPU in NVIDIA's device plugin (renameByDefault).
	SharedGPU = "nvidia.com/gpu.shared"
	// WholeGPU is its resource of an undivided GPU.
	WholeGPU = "nvidia.com/gpu"
)

// PerDevice is how many thousandths a device has.
const PerDevice = 1000

// Unit is the unit of a pool's quota.
type Unit struct {
	// Resource is the resource in the quota of Kueue's queues.
	Resource string
	// PerDevice is the amount of it in a whole device.
	PerDevice int64
}

// Sliced returns the unit of a pool that gives out parts of devices; false if it gives out whole ones.
// The amounts in the pool's spec are devices: each is multiplied by PerDevice. With mig and no profile,
// or time slicing without replicas, the devices stay whole. So does the unit with vgpu: virtual machines
// request the resources of spec.resources, each of which is one device.
func Sliced(v *v1alpha1.Virtualization) (Unit, bool) {
	switch {
	case v == nil || !v.Enabled:
		return Unit{}, false
	case v.Strategy == v1alpha1.StrategyMIG && v.Profile != "" && v.Profile != profileNone:
		return Unit{Resource: MilliGPU, PerDevice: PerDevice}, true
	case v.Strategy == v1alpha1.StrategyTimeSlicing && v.Replicas > 0:
		return Unit{Resource: SharedGPU, PerDevice: int64(v.Replicas)}, true
	}
	return Unit{}, false
}

// profileNone is the profile of NVIDIA's MIG manager that leaves devices whole.
const profileNone = "all-disabled"

// Count returns the amount of n of a node's or pod's resource in the unit; 0 for a resource that the
// pool does not give out.
func (u Unit) Count(resource string, n int64) int64 {
	switch {
	case resource == u.Resource:
		return n
	case u.Resource == MilliGPU:
		milli, _ := MilliOf(resource)
		return milli * n
	}
	return 0
}
