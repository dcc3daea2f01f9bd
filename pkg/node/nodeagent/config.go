// SPDX-License-Identifier: Apache-2.0

package nodeagent

import (
	"errors"
	"fmt"
	"path/filepath"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/nvtopo/nvtopo/internal/release"
)

// Mode is the policy for a container that cannot get the GPUs chosen for it.
type Mode string

// Values of Mode.
const (
	// Repair gives the container the best available GPUs, and the controller corrects the annotation.
	Repair Mode = "repair"
	// Strict rejects the pod at admission, or the container before it starts.
	Strict Mode = "strict"
)

// Topology selects whether kubelet receives the devices' NUMA nodes.
type Topology string

// Values of Config.Topology.
const (
	PassTopology  Topology = "pass"
	StripTopology Topology = "strip"
)

// NRIMode selects the agent's role as a plugin of the container runtime.
type NRIMode string

// Values of Config.NRI.
const (
	NRIOff    NRIMode = "off"
	NRIReport NRIMode = "report" // report containers that request GPUs that kubelet did not give them
	NRIPin    NRIMode = "pin"    // also confine GPU containers to their GPUs' NUMA nodes
)

// Config configures an agent. Node is required; all other fields have defaults.
type Config struct {
	// Node is the name of the agent's node.
	Node string
	// Namespace of the Lease; nvtopo-system by default.
	Namespace string
	// Mode is Repair by default.
	Mode Mode
	// Topology is PassTopology by default.
	Topology Topology
	// KubeletDir is kubelet's root folder; /var/lib/kubelet by default. The sockets of
	// device plugins are always under /var/lib/kubelet, whatever root folder kubelet
	// has.
	KubeletDir string
	// PluginDir is the folder of kubelet's and the device plugins' sockets.
	PluginDir string
	// PodResourcesSocket is the socket of kubelet's PodResources service.
	PodResourcesSocket string
	// StateDir is the folder of the agent's record of devices given to containers, which survives its
	// restarts.
	StateDir string
	// KubeletConfig is kubelet's configuration file; if empty, the agent reads kubelet's /configz.
	KubeletConfig string
	// NRI is NRIOff by default.
	NRI NRIMode
	// NRISocket is the runtime's NRI socket; /var/run/nri/nri.sock by default.
	NRISocket string
	// NRIExempt lists namespaces whose containers may request any GPU, as device plugins and monitoring
	// must.
	NRIExempt []string
	// SysfsRoot is the mount point of the host's sysfs; /sys by default.
	SysfsRoot string
}

func (c Config) withDefaults() (Config, error) {
	if c.Node == "" {
		return c, errors.New("the node's name is empty")
	}
	if msgs := validation.IsDNS1123Subdomain(c.Node); len(msgs) > 0 {
		return c, fmt.Errorf("node name %q: %s", c.Node, msgs[0])
	}
	choose(&c.Namespace, release.Namespace)
	choose(&c.Mode, Repair)
	choose(&c.Topology, PassTopology)
	choose(&c.NRI, NRIOff)
	choose(&c.KubeletDir, "/var/lib/kubelet")
	choose(&c.PluginDir, "/var/lib/kubelet/device-plugins")
	choose(&c.PodResourcesSocket, filepath.Join(c.KubeletDir, "pod-resources", "kubelet.sock"))
	choose(&c.StateDir, "/var/lib/nvtopo")
	choose(&c.NRISocket, "/var/run/nri/nri.sock")
	choose(&c.SysfsRoot, "/sys")
	switch {
	case c.Mode != Repair && c.Mode != Strict:
		return c, fmt.Errorf("mode %q: want %s or %s", c.Mode, Repair, Strict)
	case c.Topology != PassTopology && c.Topology != StripTopology:
		return c, fmt.Errorf("topology %q: want %s or %s", c.Topology, PassTopology, StripTopology)
	case c.NRI != NRIOff && c.NRI != NRIReport && c.NRI != NRIPin:
		return c, fmt.Errorf("nri %q: want %s, %s or %s", c.NRI, NRIOff, NRIReport, NRIPin)
	}
	return c, nil
}

// choose sets *p to value if *p is unset.
func choose[T comparable](p *T, value T) {
	var unset T
	if *p == unset {
		*p = value
	}
}
