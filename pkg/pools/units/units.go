// SPDX-License-Identifier: Apache-2.0

package units

import (
	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
)

const (
	// MilliGPU is what Kueue counts MIG slices as: thousandths of a GPU. No node and no pod has
	// it; Kueue makes it of the slices by its configuration (resources.transformations).
	MilliGPU = v1alpha1.GroupName + "/milli-gpu"
	// SharedGPU is what NVIDIA's device plugin calls a turn on a GPU (renameByDefault).
	SharedGPU = "nvidia.com/gpu.shared"
	// WholeGPU is what it calls a GPU that is not divided.
	WholeGPU = "nvidia.com/gpu"
)

// PerDevice is how many thousandths a device has.
const PerDevice = 1000

// Unit is what the quota of a pool is counted in.
type Unit struct {
	// Resource is the resource that Kueue's queues have the quota of.
	Resource string
	// PerDevice is how much of it a whole device is.
	PerDevice int64
}

// Sliced is the unit of a pool that gives out parts of devices; false if it gives out whole ones.
// The amounts in the pool's spec are devices: each is multiplied by PerDevice. With mig and no
// profile, or turns without their number, the devices stay whole. So does the unit with vgpu: the
// resources that the virtual machines ask for are those of spec.resources, each counting as one.
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

// Count is how much n of a resource, of a node or of a pod, are in the unit; 0 for a resource that
// the pool does not give out.
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
