// SPDX-License-Identifier: Apache-2.0

package visible

import "strings"

// Settings that determine which devices a container gets, and how it numbers them.
const (
	VisibleDevices = "NVIDIA_VISIBLE_DEVICES"
	CUDADevices    = "CUDA_VISIBLE_DEVICES"
	DeviceMounts   = "/var/run/nvidia-container-devices"

	cudaVersion = "CUDA_VERSION"
	requireCUDA = "NVIDIA_REQUIRE_CUDA"
	cdiVendor   = "nvidia.com"
)

// Names of the requests by environment in reports.
const (
	ByEnvironment = "environment " + VisibleDevices
	ByImage       = "image of CUDA before 9 without " + VisibleDevices
)

// FromEnvironment returns the devices that the variable requests. If it is set several times (containerd
// passes on the values of image, device plugin and pod), the last one is used, by the runtime and by the
// toolkit.
func FromEnvironment(env []string) ([]string, string) {
	last := map[string]string{}
	for _, e := range env {
		if name, value, ok := strings.Cut(e, "="); ok {
			last[name] = value
		}
	}
	value, set := last[VisibleDevices]
	if !set {
		// For images older than the variable the toolkit assumes "all".
		if last[cudaVersion] != "" && last[requireCUDA] == "" {
			return []string{"all"}, ByImage
		}
		return nil, ByEnvironment
	}
	if strings.HasPrefix(value, DeviceMounts) {
		return nil, ByEnvironment // the value means that the mounts are used
	}
	var names []string
	for part := range strings.SplitSeq(value, ",") {
		switch part = strings.TrimSpace(part); part {
		case "void":
			return nil, ByEnvironment // the toolkit does nothing at all
		case "", "none": // no device, only the driver's libraries
		default:
			if strings.Contains(part, "=") {
				names = append(names, CDIName(part)...)
			} else {
				names = append(names, part)
			}
		}
	}
	return names, ByEnvironment
}

// CDIName returns the device's name if qualified is the name of an NVIDIA GPU.
func CDIName(qualified string) []string {
	kind, device, ok := strings.Cut(qualified, "=")
	if !ok || device == "" {
		return nil
	}
	vendor, class, ok := strings.Cut(kind, "/")
	if !ok || (vendor != cdiVendor && !strings.HasSuffix(vendor, "."+cdiVendor)) {
		return nil
	}
	switch class {
	case "gpu", "mig":
		// The style "type-index" writes gpu0 for 0 and mig0:1 for 0:1.
		if bare := strings.TrimPrefix(strings.TrimPrefix(device, "gpu"), "mig"); bare != "" && bare[0] >= '0' && bare[0] <= '9' {
			device = bare
		}
		return []string{device}
	}
	return nil
}
