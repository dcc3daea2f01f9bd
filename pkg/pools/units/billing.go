// SPDX-License-Identifier: Apache-2.0

package units

import (
	"fmt"
	"strings"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
)

// Devices is how many devices n of a resource are, to a thousandth, as a bill has it. replicas is
// how many containers take turns on each of them, 1 or less if none do. What each one is, is rounded
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

// DeviceOf is the resource of the whole devices that a resource is parts of: WholeGPU for slices and
// turns, and otherwise the resource itself.
func DeviceOf(resource string) string {
	if IsSlice(resource) {
		return WholeGPU
	}
	return resource
}
