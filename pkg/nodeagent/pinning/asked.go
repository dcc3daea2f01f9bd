// SPDX-License-Identifier: Apache-2.0

package pinning

import (
	"path"
	"slices"
	"strings"

	"github.com/containerd/nri/pkg/api"
)

// How a container asks the NVIDIA container toolkit or CDI for devices.
const (
	visibleDevices = "NVIDIA_VISIBLE_DEVICES"
	cudaVersion    = "CUDA_VERSION"
	requireCUDA    = "NVIDIA_REQUIRE_CUDA"
	cdiAnnotations = "cdi.k8s.io/"
	cdiVendor      = "nvidia.com"
	deviceMounts   = "/var/run/nvidia-container-devices"
	nullDevice     = "/dev/null"
)

// The ways of asking, as they are reported.
const (
	byEnvironment = "environment " + visibleDevices
	byImage       = "image of CUDA before 9 without " + visibleDevices
	byMounts      = "mounts below " + deviceMounts
	byAnnotation  = "CDI annotations"
	byCDI         = "CDI devices"
)

// wish is what a container asks for: device names as it wrote them, without the vendor
// of a CDI name.
type wish struct {
	all   bool
	names []string
	ways  []string // how it asks
}

func (w *wish) empty() bool { return !w.all && len(w.names) == 0 }

func (w *wish) add(way string, names ...string) {
	for _, n := range names {
		if n == "all" {
			w.all = true
		} else if !slices.Contains(w.names, n) {
			w.names = append(w.names, n)
		}
		if !slices.Contains(w.ways, way) {
			w.ways = append(w.ways, way)
		}
	}
}

// askedFor reads a container as the toolkit would. Annotations win over the
// environment. Mounts count as well, because a setting of the node decides whether the
// toolkit prefers them.
func askedFor(c *api.Container) *wish {
	w := &wish{}
	for name, value := range c.GetAnnotations() {
		if !strings.HasPrefix(name, cdiAnnotations) {
			continue
		}
		for device := range strings.SplitSeq(value, ",") {
			w.add(byAnnotation, cdiName(strings.TrimSpace(device))...)
		}
	}
	annotated := !w.empty()
	for _, d := range c.GetCDIDevices() {
		w.add(byCDI, cdiName(d.GetName())...)
	}
	for _, m := range c.GetMounts() {
		w.add(byMounts, mounted(m)...)
	}
	if !annotated {
		names, way := fromEnvironment(c.GetEnv())
		w.add(way, names...)
	}
	slices.Sort(w.names)
	return w
}

// fromEnvironment reads the variable. If it is set several times (containerd passes on
// the values of image, device plugin and pod), the last one counts, for the runtime and
// for the toolkit.
func fromEnvironment(env []string) ([]string, string) {
	last := map[string]string{}
	for _, e := range env {
		if name, value, ok := strings.Cut(e, "="); ok {
			last[name] = value
		}
	}
	value, set := last[visibleDevices]
	if !set {
		// Images that are older than the variable mean "all".
		if last[cudaVersion] != "" && last[requireCUDA] == "" {
			return []string{"all"}, byImage
		}
		return nil, byEnvironment
	}
	if strings.HasPrefix(value, deviceMounts) {
		return nil, byEnvironment // the value says that the mounts count
	}
	var names []string
	for part := range strings.SplitSeq(value, ",") {
		switch part = strings.TrimSpace(part); part {
		case "void":
			return nil, byEnvironment // the toolkit does nothing at all
		case "", "none": // no device, only the driver's libraries
		default:
			if strings.Contains(part, "=") {
				names = append(names, cdiName(part)...)
			} else {
				names = append(names, part)
			}
		}
	}
	return names, byEnvironment
}

// mounted reads one mount: /dev/null, mounted at a path that ends in the device's name.
func mounted(m *api.Mount) []string {
	if path.Clean(m.GetSource()) != nullDevice {
		return nil
	}
	at := path.Clean(m.GetDestination())
	if rest, ok := strings.CutPrefix(at, "/run/"); ok {
		at = "/var/run/" + rest
	}
	name, ok := strings.CutPrefix(at, deviceMounts+"/")
	if !ok {
		return nil
	}
	// cdi/VENDOR/CLASS/NAME is a CDI device. Any other nested name is not a GPU.
	if qualified, ok := strings.CutPrefix(name, "cdi/"); ok {
		if i := strings.LastIndexByte(qualified, '/'); i > 0 {
			return cdiName(qualified[:i] + "=" + qualified[i+1:])
		}
		return nil
	}
	if strings.Contains(name, "/") {
		return nil
	}
	return []string{name}
}

// cdiName returns the device's name if qualified is the name of an NVIDIA GPU.
func cdiName(qualified string) []string {
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
