// SPDX-License-Identifier: Apache-2.0

package units

import (
	"fmt"
	"strings"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
)

// Devices converts n of a resource to devices, to a thousandth, for bills. replicas is the number of
// containers that share each of them by time slicing, 1 or less without it. Each one's part is rounded
// down, so that the parts of a device are never more than the device.
func Devices(resource string, n, replicas int64) v1alpha1.Decimal {
	one := int64(PerDevice)
	if milli, ok := MilliOf(resource); ok {
		one = milli
	}
	if replicas > 1 {
		one /= replicas
	}
	text := fmt.Sprintf("%d.%03d", one*n/PerDevice, one*n%PerDevice)
	return v1alpha1.Decimal(strings.TrimSuffix(strings.TrimRight(text, "0"), "."))
}

// DeviceOf returns the resource of the whole devices that a resource is parts of: WholeGPU for MIG
// slices and time-sliced GPUs, and otherwise the resource itself.
func DeviceOf(resource string) string {
	if IsSlice(resource) {
		return WholeGPU
	}
	return resource
}
