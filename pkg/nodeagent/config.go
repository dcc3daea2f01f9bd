// SPDX-License-Identifier: Apache-2.0

package nodeagent

import (
	"errors"
	"fmt"
	"path/filepath"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Mode says what happens when a container cannot get the GPUs chosen for it.
type Mode string

// The modes.
const (
	// Repair gives it the best GPUs available and has the annotation corrected.
	Repair Mode = "repair"
	// Strict refuses it at admission, or before it starts.
	Strict Mode = "strict"
)

// Topology says whether kubelet is told the devices' NUMA nodes.
type Topology string

// The values of Config.Topology.
const (
	PassTopology  Topology = "pass"
	StripTopology Topology = "strip"
)

// NRIMode says what the agent does at the container runtime.
type NRIMode string

// The values of Config.NRI.
const (
	NRIOff    NRIMode = "off"
	NRIReport NRIMode = "report" // containers that ask for GPUs kubelet did not give them
	NRIPin    NRIMode = "pin"    // and GPU containers run on their GPUs' NUMA nodes
)

// Config is what an agent is told. Node is required; the zero value of the rest
// is usable.
type Config struct {
	// Node is the node this agent is for.
	Node string
	// Namespace of the Lease; nvtopo-system by default.
	Namespace string
	// Mode is Repair by default.
	Mode Mode
	// Topology is PassTopology by default.
	Topology Topology
	// KubeletDir is kubelet's root folder; /var/lib/kubelet by default. The sockets of
	// device plugins are always under /var/lib/kubelet, whatever kubelet is told.
	KubeletDir string
	// PluginDir is where kubelet and device plugins meet.
	PluginDir string
	// PodResourcesSocket is where kubelet tells what it has recorded.
	PodResourcesSocket string
	// StateDir keeps what was given to whom over a restart of the agent.
	StateDir string
	// KubeletConfig is kubelet's configuration file; empty asks kubelet itself.
	KubeletConfig string
	// NRI is NRIOff by default.
	NRI NRIMode
	// NRISocket is the runtime's; /var/run/nri/nri.sock by default.
	NRISocket string
	// NRIExempt lists namespaces whose containers may ask for any GPU: those of device
	// plugins and monitoring, which do by design.
	NRIExempt []string
	// SysfsRoot is where the host's sysfs is mounted; /sys by default.
	SysfsRoot string
}

func (c Config) withDefaults() (Config, error) {
	if c.Node == "" {
		return c, errors.New("the node's name is empty")
	}
	if msgs := validation.IsDNS1123Subdomain(c.Node); len(msgs) > 0 {
		return c, fmt.Errorf("node name %q: %s", c.Node, msgs[0])
	}
	choose(&c.Namespace, "nvtopo-system")
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

// choose sets what is not set.
func choose[T comparable](p *T, value T) {
	var unset T
	if *p == unset {
		*p = value
	}
}
