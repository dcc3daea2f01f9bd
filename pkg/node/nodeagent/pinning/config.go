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

// Mode says what the plugin does.
type Mode string

// The modes.
const (
	// Report reports containers that ask for GPUs they were not given.
	Report Mode = "report"
	// Pin does the same, and also confines containers to their GPUs' NUMA nodes.
	Pin Mode = "pin"
)

// Config connects the plugin with the rest of the agent. The runtime waits while the
// functions run, so they must not block.
type Config struct {
	Node   string
	Socket string // the runtime's NRI socket, /var/run/nri/nri.sock
	Mode   Mode
	// SysfsRoot is where the host's sysfs is mounted.
	SysfsRoot string
	// Records reads kubelet's current record. Nobody changes the result.
	Records func() ([]kubelet.Record, error)
	// Topology returns the node's graph, or nil while it is unknown.
	Topology func() *v1alpha1.NodeGPUTopology
	// Kubelet returns how kubelet is configured, or nil while that is unknown.
	Kubelet func() *v1alpha1.Kubelet
	// Allocation returns the scheduler's choice for a pod, or nil if there is none that
	// is valid on this node.
	Allocation func(uid types.UID) *allocation.Allocation
	// Changed is called when an answer of CPUs has changed.
	Changed func()
	// Escaped is called for each container that asks for GPUs it was not given.
	Escaped func(Escape)
	// Misbound is called for each container whose environment binds threads to CPUs that it may not use. what
	// says which.
	Misbound func(uid types.UID, container, what string)
	// Exempt lists namespaces whose containers may ask for any GPU: device plugins,
	// monitoring and the GPU operator need to ask for all.
	Exempt []string
	// Pinned is called with every change of the condition Pinned, from Run's goroutine.
	Pinned func(metav1.Condition)
}

// Plugin is the NRI plugin. It is safe for concurrent use.
type Plugin struct {
	cfg Config
	clk clock.WithTicker
	// answer is the time for one answer: budget, except in tests that a slow machine must not end.
	answer time.Duration
	host   host
	poke   chan struct{} // makes watchCondition look again

	mu   sync.Mutex
	link link                // guarded by mu
	set  map[key]confinement // guarded by mu
	said map[string]struct{} // messages that are logged only once; guarded by mu
}

// key names a container of a pod. It stays the same over restarts.
type key struct {
	uid  types.UID
	name string
}

// confinement is what one run of a container is confined to.
type confinement struct {
	id   string // the runtime's id of the container
	cpus string
}

// New checks the configuration; nothing runs before Run.
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

// CPUs returns the CPUs that this plugin confined the running container to, in the
// kernel's list format, or "" if it did not.
func (p *Plugin) CPUs(uid types.UID, container string) string {
	if k := p.cfg.Kubelet(); k == nil || k.CPUManagerPolicy != kubeletconf.CPUPolicyNone {
		return ""
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.set[key{uid, container}].cpus
}

// canonical returns a list in the kernel's format in the form that the custom resource
// wants, or "" if it is not a list.
func canonical(list string) string {
	cpus, err := nvtopo.ParseCPUList(list)
	if err != nil {
		return ""
	}
	return cpus.String()
}
