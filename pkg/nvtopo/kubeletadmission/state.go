// SPDX-License-Identifier: Apache-2.0

package kubeletadmission

import "github.com/nvtopo/nvtopo/pkg/nvtopo"

// Kind is when a container runs and who gets its devices afterwards.
type Kind uint8

// The kinds of container.
const (
	App     Kind = iota
	Sidecar      // an init container that keeps running
	Init         // its devices, CPUs and memory go to later containers
)

// Container is one container's request to the managers.
type Container struct {
	Kind    Kind
	CPUs    int               // exclusive CPUs; 0 unless the pod is Guaranteed and the number whole
	Memory  int64             // bytes that the memory manager reserves; 0 unless the pod is Guaranteed
	Devices [MaxResources]int // by resource, in the order given to New
}

// Pod is a pod's request: its containers in the order in which kubelet admits them, init containers
// first.
type Pod struct {
	Containers []Container
	whole      Container // as one, for the pod scope
}

// NewPod returns the pod of these containers.
func NewPod(containers []Container) *Pod {
	p := &Pod{Containers: containers}
	var running, most Container // sidecars and app containers; the most that an init container needs beside sidecars
	appMemory := false
	for i := range containers {
		c := &containers[i]
		if c.Kind != Init {
			running.add(c)
			appMemory = appMemory || c.Kind == App && c.Memory > 0
			continue
		}
		sum := running
		sum.add(c)
		most.raise(&sum)
	}
	p.whole = running
	p.whole.raise(&most)
	if !appMemory {
		p.whole.Memory = 0 // kubelet sums up only resources that app containers request too
	}
	return p
}

func (c *Container) add(o *Container) {
	c.CPUs += o.CPUs
	c.Memory += o.Memory
	for i, n := range o.Devices {
		c.Devices[i] += n
	}
}

func (c *Container) raise(o *Container) {
	c.CPUs, c.Memory = max(c.CPUs, o.CPUs), max(c.Memory, o.Memory)
	for i, n := range o.Devices {
		c.Devices[i] = max(c.Devices[i], n)
	}
}

// Pinned reports whether any container gets exclusive CPUs or memory.
func (p *Pod) Pinned() bool { return p.whole.CPUs > 0 || p.whole.Memory > 0 }

// CPUs returns how many exclusive CPUs the pod's containers get at the same time.
func (p *Pod) CPUs() int { return p.whole.CPUs }

// Memory is the memory manager's state of one NUMA node.
type Memory struct {
	Free, Allocatable int64
	Cells             []int // ids of the nodes it is grouped with; empty: itself alone
}

// State is the free supply of a machine at one moment. It is a value: a copy is independent of the
// original.
type State struct {
	// Free are the healthy devices that no container has, by resource.
	Free [MaxResources]nvtopo.Mask

	shared cpuSet // CPUs exclusive to no container, including the reserved
	memory [MaxNodes]memory
	own    carried
}

// carried is the devices, CPUs and memory that init containers of the pod being admitted leave to later
// ones.
type carried struct {
	devices [MaxResources]nvtopo.Mask
	cpus    cpuSet
	memory  [maxCarried]carriedMemory
	n       int // entries of memory
}

// NewState returns a state without free devices. exclusive are the CPUs exclusive to containers; memory
// is by node position as given to New, nil for a machine without a static memory manager.
func (m *Machine) NewState(exclusive nvtopo.CPUSet, memory map[int]Memory) State {
	var s State
	if m.cpu != nil {
		s.shared = m.cpu.all.minus(toCPUSet(exclusive))
	}
	for i, id := range m.ids {
		n := &s.memory[i]
		n.cells = 1 << i
		account, ok := memory[id]
		if !ok {
			continue
		}
		n.free, n.allocatable = account.Free, account.Allocatable
		if len(account.Cells) > 0 {
			n.cells = m.setOf(account.Cells)
		}
		// A node outside a group is used only if some of its memory is taken.
		n.used = n.free < n.allocatable || n.cells.len() > 1
	}
	return s
}

func (m *Machine) setOf(ids []int) NodeSet {
	var set NodeSet
	for i, id := range m.ids {
		for _, want := range ids {
			if id == want {
				set |= 1 << i
			}
		}
	}
	return set
}

// FreeCPUs returns how many CPUs of a node a container may get exclusively.
func (m *Machine) FreeCPUs(s *State, id int) int {
	if m.cpu == nil {
		return 0
	}
	for i := range m.ids {
		if m.ids[i] == id {
			available := s.shared.minus(m.cpu.reserved)
			return m.cpu.nodes[i].common(&available)
		}
	}
	return 0
}

// FreeMemory returns the free memory of a node in the memory manager's state, in bytes.
func (m *Machine) FreeMemory(s *State, id int) int64 {
	for i := range m.ids {
		if m.ids[i] == id {
			return s.memory[i].free
		}
	}
	return 0
}
