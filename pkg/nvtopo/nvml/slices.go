// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"fmt"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// readSlices reads the MIG devices of a device in MIG mode. One whose profile cannot be named is left
// out, since no pod could request it.
func (r *reading) readSlices() error {
	list, err := r.handle.Slices()
	if err != nil {
		r.uncut = true
		return err
	}
	for i := range list {
		if profile := profileOf(&list[i], r.memory); profile != "" {
			r.slices = append(r.slices, nvtopo.Slice{UUID: list[i].UUID, Profile: profile})
		}
	}
	return nil
}

// profileOf returns the profile of a slice as NVIDIA's device plugin names it in its resource: compute
// slices, then memory in GB, the number of eighths of the GPU's memory that hold it. (go-nvlib,
// pkg/nvlib/device/mig_profile.go. The driver does not report attributes of a slice's profile, such as
// me.) It is empty where the driver's numbers make no sense.
func profileOf(s *Slice, memory int64) string {
	const parts, gb = 8, 1 << 30
	if s.GPUSlices < 1 || s.ComputeSlices < 1 || s.MemoryBytes < 1 || memory < s.MemoryBytes {
		return ""
	}
	eighths := (s.MemoryBytes*parts + memory - 1) / memory
	total := (memory + gb - 1) / gb
	size := (2*eighths*total + parts) / (2 * parts) // rounded to the nearest whole number
	if s.ComputeSlices != s.GPUSlices {
		return fmt.Sprintf("%dc.%dg.%dgb", s.ComputeSlices, s.GPUSlices, size)
	}
	return fmt.Sprintf("%dg.%dgb", s.GPUSlices, size)
}
