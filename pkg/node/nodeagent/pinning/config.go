// SPDX-License-Identifier: Apache-2.0

package pinning

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/kubelet"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/kubelet/kubeletconf"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

// Mode selects the plugin's actions.
type Mode string

// Values of Mode.
const (
	// Report reports containers that request GPUs that they were not given.
	Report Mode = "report"
	// Pin does the same, and also confines containers to their GPUs' NUMA nodes.
	Pin Mode = "pin"
)

// Config connects the plugin with the rest of the agent. The runtime waits while the functions run, so
// they must not block.
type Config struct {
	Node   string
	Socket string // the runtime's NRI socket, /var/run/nri/nri.sock
	Mode   Mode
	// SysfsRoot is the mount point of the host's sysfs.
	SysfsRoot string
	// Records returns kubelet's current records. The result is not changed.
	Records func() ([]kubelet.Record, error)
	// Topology returns the node's graph, or nil while it is unknown.
	Topology func() *v1alpha1.NodeGPUTopology
	// Kubelet returns kubelet's settings, or nil while they are unknown.
	Kubelet func() *v1alpha1.Kubelet
	// Allocation returns a pod's allocation, or nil if it has none that is valid on this node.
	Allocation func(uid types.UID) *allocation.Allocation
	// Changed is called when a result of CPUs has changed.
	Changed func()
	// Escaped is called for each container that requests GPUs that it was not given.
	Escaped func(Escape)
	// Misbound is called for each container whose environment binds threads to CPUs that it may not use;
	// what describes them.
	Misbound func(uid types.UID, container, what string)
	// Exempt lists namespaces whose containers may request any GPU: device plugins, monitoring and the GPU
	// operator must request all.
	Exempt []string
	// Pinned is called with every change of the Pinned condition, from Run's goroutine.
	Pinned func(metav1.Condition)
}

// Plugin is the NRI plugin. It is safe for concurrent use.
type Plugin struct {
	cfg Config
	clk clock.WithTicker
	// answer is the time limit of one answer: budget, except in tests that a slow machine must not end.
	answer time.Duration
	host   host
	poke   chan struct{} // makes watchCondition check again

	mu   sync.Mutex
	link link                // guarded by mu
	set  map[key]confinement // guarded by mu
	said map[string]struct{} // messages that are logged only once; guarded by mu
}

// key identifies a container of a pod across its restarts.
type key struct {
	uid  types.UID
	name string
}

// confinement is the CPUs of one run of a container.
type confinement struct {
	id   string // the runtime's id of the container
	cpus string
}

// New returns a plugin, or an error if cfg is incomplete; Run starts it.
func New(cfg Config, clk clock.WithTicker) (*Plugin, error) {
	switch {
	case cfg.Node == "" || cfg.Socket == "" || cfg.SysfsRoot == "":
		return nil, errors.New("pinning: a node name, the runtime's socket and a sysfs are needed")
	case cfg.Mode != Report && cfg.Mode != Pin:
		return nil, fmt.Errorf("pinning: mode %q, want %s or %s", cfg.Mode, Report, Pin)
	case cfg.Records == nil || cfg.Topology == nil || cfg.Kubelet == nil || cfg.Allocation == nil:
		return nil, errors.New("pinning: kubelet's records and configuration, the topology and the scheduler's choices are needed")
	}
	if cfg.Escaped == nil {
		cfg.Escaped = func(Escape) {}
	}
	if cfg.Misbound == nil {
		cfg.Misbound = func(types.UID, string, string) {}
	}
	if cfg.Changed == nil {
		cfg.Changed = func() {}
	}
	if cfg.Pinned == nil {
		cfg.Pinned = func(metav1.Condition) {}
	}
	cfg.Exempt = slices.Clone(cfg.Exempt)
	return &Plugin{
		cfg: cfg, clk: clk, answer: budget, host: host{root: cfg.SysfsRoot}, poke: make(chan struct{}, 1),
		set: map[key]confinement{}, said: map[string]struct{}{},
	}, nil
}

// CPUs returns the CPUs that this plugin confined the running container to, in the kernel's list format,
// or "" if it did not.
func (p *Plugin) CPUs(uid types.UID, container string) string {
	if k := p.cfg.Kubelet(); k == nil || k.CPUManagerPolicy != kubeletconf.CPUPolicyNone {
		return ""
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.set[key{uid, container}].cpus
}

// canonical converts a list in the kernel's format to the form that the NodeGPUTopology's schema
// requires, or returns "" if it is not a list.
func canonical(list string) string {
	cpus, err := nvtopo.ParseCPUList(list)
	if err != nil {
		return ""
	}
	return cpus.String()
}
