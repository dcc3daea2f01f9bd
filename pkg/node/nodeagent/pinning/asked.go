// SPDX-License-Identifier: Apache-2.0

package pinning

import (
	"path"
	"slices"
	"strings"

	"github.com/containerd/nri/pkg/api"

	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/visible"
)

// Forms in which a container requests devices from the NVIDIA container toolkit or CDI.
const (
	cdiAnnotations = "cdi.k8s.io/"
	deviceMounts   = visible.DeviceMounts
	nullDevice     = "/dev/null"
)

// Names of the forms in reports.
const (
	byMounts     = "mounts below " + deviceMounts
	byAnnotation = "CDI annotations"
	byCDI        = "CDI devices"
)

// wish is a container's device request: device names as the container wrote them, without the vendor of a
// CDI name.
type wish struct {
	all   bool
	names []string
	ways  []string // forms of the request
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

// askedFor reads a container's device request as the toolkit would. Annotations take precedence over the
// environment. Mounts are included as well, because a setting of the node decides whether the toolkit
// prefers them.
func askedFor(c *api.Container) *wish {
	w := &wish{}
	for name, value := range c.GetAnnotations() {
		if !strings.HasPrefix(name, cdiAnnotations) {
			continue
		}
		for device := range strings.SplitSeq(value, ",") {
			w.add(byAnnotation, visible.CDIName(strings.TrimSpace(device))...)
		}
	}
	annotated := !w.empty()
	for _, d := range c.GetCDIDevices() {
		w.add(byCDI, visible.CDIName(d.GetName())...)
	}
	for _, m := range c.GetMounts() {
		w.add(byMounts, mounted(m)...)
	}
	if !annotated {
		names, way := visible.FromEnvironment(c.GetEnv())
		w.add(way, names...)
	}
	slices.Sort(w.names)
	return w
}

// mounted returns the devices that one mount requests: /dev/null, mounted at a path that ends in the
// device's name.
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
			return visible.CDIName(qualified[:i] + "=" + qualified[i+1:])
		}
		return nil
	}
	if strings.Contains(name, "/") {
		return nil
	}
	return []string{name}
}
