// SPDX-License-Identifier: Apache-2.0

package metering

import (
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/computepool"
	"github.com/nvtopo/nvtopo/pkg/pools/units"
)

// labelReplicas is the label with the number of containers that share each GPU of a node by time
// slicing, set by NVIDIA's feature discovery.
const labelReplicas = "nvidia.com/gpu.replicas"

// counts reports whether a resource is one of the pool's, or parts of one.
func counts(pool *v1alpha1.ComputePool, resource string) bool {
	of := computepool.Resources(pool)
	return slices.Contains(of, v1.ResourceName(resource)) || slices.Contains(of, v1.ResourceName(units.DeviceOf(resource)))
}

// replicasOn returns the number of containers that share each device of a resource on a node: the node's
// label, else, for a time-slicing resource, the pool's setting.
func replicasOn(labels map[string]string, pool *v1alpha1.ComputePool, resource string) int64 {
	if units.DeviceOf(resource) != units.WholeGPU {
		return 1
	}
	if n, err := strconv.ParseInt(labels[labelReplicas], 10, 32); err == nil && n >= 1 {
		return n
	}
	if v := pool.Spec.Virtualization; v != nil && strings.HasPrefix(resource, units.SharedGPU) {
		return int64(v.Replicas)
	}
	return 1
}
