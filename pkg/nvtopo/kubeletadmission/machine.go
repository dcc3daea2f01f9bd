// SPDX-License-Identifier: Apache-2.0

package kubeletadmission

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"sync"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

const (
	// MaxNodes bounds the NUMA nodes of a machine. kubelet weighs every subset of them and by default stops
	// at 8; the subsets of 16 nodes are the most that is feasible.
	MaxNodes = 16
	// defaultMaxNodes is kubelet's own limit unless max-allowable-numa-nodes raises it.
	defaultMaxNodes = 8
	// MaxResources bounds the device resources of one machine.
	MaxResources = 8
)

// Policy is the topology manager's policy.
type Policy uint8

// The policies, in kubelet's order of strictness.
const (
	PolicyNone Policy = iota
	PolicyBestEffort
	PolicyRestricted
	PolicySingleNUMANode
)

// ParsePolicy parses the policy's name in kubelet's configuration; empty is none.
func ParsePolicy(s string) (Policy, error) {
	switch s {
	case "", "none":
		return PolicyNone, nil
	case "best-effort":
		return PolicyBestEffort, nil
	case "restricted":
		return PolicyRestricted, nil
	case "single-numa-node":
		return PolicySingleNUMANode, nil
	}
	return PolicyNone, fmt.Errorf("unknown topology manager policy %q", s)
}

// Config is the configuration of a kubelet.
type Config struct {
	Policy   Policy
	PodScope bool // the pod as a whole; otherwise each container by itself
	// StaticCPUs and StaticMemory report that the managers with exclusive CPUs and memory are on.
	StaticCPUs, StaticMemory bool
	TopologyOptions          map[string]string // as configured
	CPUOptions               map[string]string // as configured
	ReservedCPUs             nvtopo.CPUSet     // never exclusive to a container
	// DeviceNodes restricts hints for devices to NUMA nodes that have such devices, as kubelet does from
	// 1.36 on. Before, hints may name any node.
	DeviceNodes bool
}

// Node is one NUMA node of the machine.
type Node struct {
	ID        int
	CPUs      nvtopo.CPUSet
	Siblings  []nvtopo.CPUSet // hyper-threads by core; a CPU in none is a core of its own
	Socket    int             // nodes of one processor have the same number
	Distances []int           // SLIT row in the order of the nodes
}

// Resource is one kind of devices on the machine.
type Resource struct {
	All       nvtopo.Mask // devices the plugin lists, healthy or not
	NUMA      []int       // NUMA node id of each device, nvtopo.UnknownNUMA if not known
	Unaligned bool        // the plugin reports no NUMA nodes
}

// NodeSet is a set of NUMA nodes by their position in ascending order of id, the order in which kubelet
// compares them too.
type NodeSet uint32

func (n NodeSet) len() int          { return bits.OnesCount32(uint32(n)) }
func (n NodeSet) has(i int) bool    { return n>>i&1 != 0 }
func (n NodeSet) in(o NodeSet) bool { return n&^o == 0 }

// Machine is the constant part of a machine and its kubelet. It is immutable and safe for concurrent use.
type Machine struct {
	policy    Policy
	podScope  bool
	closest   bool // prefer-closest-numa-nodes
	memory    bool // static memory manager
	nodes     int
	all       NodeSet
	ids       []int
	distances [][]int
	resources []resource
	cpu       *layout   // nil unless the CPU manager is static
	searches  sync.Pool // of *search
}

// resource is a Resource by node.
type resource struct {
	all     nvtopo.Mask
	onNode  [MaxNodes]nvtopo.Mask
	known   nvtopo.Mask // devices whose node is known
	hinted  NodeSet     // the nodes that hints may name
	aligned bool        // kubelet knows at least one device's node
}

// New returns the machine, or an error for one that such a kubelet does not support or that is too large
// to be predicted.
func New(cfg *Config, nodes []Node, resources []Resource) (*Machine, error) {
	m := &Machine{policy: cfg.Policy, podScope: cfg.PodScope, memory: cfg.StaticMemory, nodes: len(nodes), all: 1<<len(nodes) - 1}
	limit, err := m.readTopologyOptions(cfg.TopologyOptions)
	switch {
	case err != nil:
		return nil, err
	case len(nodes) == 0 || len(nodes) > MaxNodes:
		return nil, fmt.Errorf("%d NUMA nodes, 1 to %d can be predicted", len(nodes), MaxNodes)
	case cfg.Policy != PolicyNone && len(nodes) > limit:
		return nil, fmt.Errorf("%d NUMA nodes, kubelet with a topology policy runs on at most %d", len(nodes), limit)
	case len(resources) > MaxResources:
		return nil, fmt.Errorf("%d device resources, at most %d can be predicted", len(resources), MaxResources)
	}
	sorted := make([]int, len(nodes)) // position -> index in nodes
	for i := range sorted {
		sorted[i] = i
	}
	slices.SortFunc(sorted, func(a, b int) int { return cmp.Compare(nodes[a].ID, nodes[b].ID) })
	ordered := make([]Node, len(nodes))
	for p, i := range sorted {
		ordered[p] = nodes[i]
		m.ids = append(m.ids, nodes[i].ID)
		if err := m.addDistances(nodes, sorted, i); err != nil {
			return nil, err
		}
	}
	for _, r := range resources {
		m.resources = append(m.resources, m.resourceOf(&r, cfg.DeviceNodes))
	}
	if cfg.StaticCPUs {
		if m.cpu, err = newLayout(ordered, cfg.ReservedCPUs, cfg.CPUOptions); err != nil {
			return nil, err
		}
		if m.cpu.bySocket && cfg.Policy == PolicySingleNUMANode {
			return nil, fmt.Errorf("kubelet does not run with %s under single-numa-node", alignBySocket)
		}
	}
	return m, nil
}

// addDistances appends a node's distances in the order of positions.
func (m *Machine) addDistances(nodes []Node, sorted []int, i int) error {
	if !m.closest {
		return nil
	}
	if len(nodes[i].Distances) != len(nodes) {
		return fmt.Errorf("NUMA node %d has %d distances, %s needs %d", nodes[i].ID, len(nodes[i].Distances), preferClosest, len(nodes))
	}
	row := make([]int, len(nodes))
	for p, j := range sorted {
		row[p] = nodes[i].Distances[j]
	}
	m.distances = append(m.distances, row)
	return nil
}

func (m *Machine) resourceOf(r *Resource, deviceNodes bool) resource {
	out := resource{all: r.All, hinted: m.all}
	if r.Unaligned {
		return out
	}
	for d, id := range r.NUMA {
		if p := slices.Index(m.ids, id); p >= 0 && r.All.Has(d) {
			out.onNode[p] |= 1 << d
			out.known |= 1 << d
		}
	}
	out.aligned = out.known != 0
	if !deviceNodes || !out.aligned {
		return out
	}
	out.hinted = 0
	for i := range m.nodes {
		if out.onNode[i] != 0 {
			out.hinted |= 1 << i
		}
	}
	return out
}

// The topology manager's options.
const (
	preferClosest = "prefer-closest-numa-nodes"
	maxAllowable  = "max-allowable-numa-nodes"
)

func (m *Machine) readTopologyOptions(options map[string]string) (limit int, err error) {
	limit = defaultMaxNodes
	for name, value := range options {
		switch name {
		case preferClosest:
			if m.closest, err = strconv.ParseBool(value); err != nil {
				err = errors.New("want true or false")
			}
		case maxAllowable:
			if limit, err = strconv.Atoi(value); err != nil || limit < defaultMaxNodes {
				err = fmt.Errorf("want a whole number from %d", defaultMaxNodes)
			}
		default:
			err = errors.New("unknown option")
		}
		if err != nil {
			return 0, fmt.Errorf("topology manager option %s=%q: %w", name, value, err)
		}
	}
	return limit, nil
}

// Nodes returns the ids of a set of NUMA nodes, ascending.
func (m *Machine) Nodes(set NodeSet) []int {
	var out []int
	for i, id := range m.ids {
		if set.has(i) {
			out = append(out, id)
		}
	}
	return out
}

// Idle reports whether nothing in this kubelet depends on NUMA nodes or exclusive CPUs and memory, so
// that there is nothing to predict.
func (m *Machine) Idle() bool { return m.policy == PolicyNone && m.cpu == nil && !m.memory }

// Concerns reports whether kubelet's managers can refuse the pod: one that requests no devices and
// nothing exclusive is always admitted.
func (m *Machine) Concerns(p *Pod) bool {
	if p.Pinned() && (m.cpu != nil || m.memory) {
		return true
	}
	return m.aligns() && p.whole.Devices != [MaxResources]int{}
}

// Strict reports whether kubelet refuses pods that it cannot align.
func (m *Machine) Strict() bool { return m.policy >= PolicyRestricted }

func (m *Machine) aligns() bool { return m.policy != PolicyNone }
