// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	cadvisorapi "github.com/google/cadvisor/info/v1"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

const gib = 1 << 30

// machineLayout is a random machine: the data that the exporter publishes and that kubelet's cadvisor
// sees.
type machineLayout struct {
	numa     map[string][]int // resource -> NUMA node of each device, nvtopo.UnknownNUMA if not known
	nodes    []nvtopo.NUMANode
	sockets  []int // of each NUMA node
	threads  int   // of a core
	reserved int64 // bytes of each NUMA node
}

// randomLayout returns a machine with 1 to 8 NUMA nodes and 1 to 16 GPUs.
func randomLayout(r *rand.Rand) *machineLayout {
	n := []int{1, 2, 2, 2, 2, 3, 4, 4, 4, 4, 6, 8}[r.IntN(12)]
	m := &machineLayout{threads: 1 + r.IntN(2), reserved: gib}
	perSocket := 1
	if n%2 == 0 && r.IntN(3) == 0 {
		perSocket = 2
	}
	if n%4 == 0 && r.IntN(3) == 0 {
		perSocket = 4
	}
	cores := 2 + r.IntN(5)
	total := n * cores * m.threads
	for i := range n {
		m.sockets = append(m.sockets, i/perSocket)
		node := nvtopo.NUMANode{ID: i, Memory: int64(3+r.IntN(3)*8) * gib}
		for c := range cores {
			var siblings nvtopo.CPUSet
			for t := range m.threads { // threads are numbered as firmware does: all first ones, then all second
				siblings = append(siblings, t*(total/m.threads)+i*cores+c)
			}
			node.Siblings = append(node.Siblings, siblings)
			node.CPUs = append(node.CPUs, siblings...)
		}
		slices.Sort(node.CPUs)
		m.nodes = append(m.nodes, node)
	}
	for i := range m.nodes {
		for j := range m.nodes {
			d := 20 + 2*((i+j)%3)
			switch {
			case i == j:
				d = 10
			case m.sockets[i] == m.sockets[j]:
				d = 12
			}
			m.nodes[i].Distances = append(m.nodes[i].Distances, d)
		}
	}
	gpus := 1 + r.IntN(8)
	if r.IntN(8) == 0 {
		gpus = 9 + r.IntN(8)
	}
	m.numa = map[string][]int{gpu: randomNodes(r, gpus, n)}
	if r.IntN(5) == 0 {
		m.numa[fpga] = randomNodes(r, 1+r.IntN(4), n)
	}
	return m
}

// fpga is a second kind of device that some machines have.
const fpga = "example.com/fpga"

// randomNodes assigns devices to NUMA nodes.
func randomNodes(r *rand.Rand, devices, nodes int) []int {
	out := make([]int, devices)
	even := r.IntN(3) > 0
	for i := range out {
		out[i] = r.IntN(nodes)
		if even {
			out[i] = i * nodes / devices
		}
		if r.IntN(40) == 0 {
			out[i] = nvtopo.UnknownNUMA
		}
	}
	return out
}

// resources returns the resources of the machine, sorted.
func (m *machineLayout) resources() []string { return slices.Sorted(maps.Keys(m.numa)) }

func deviceID(resourceName string, i int) string {
	_, kind, _ := strings.Cut(resourceName, "/")
	return kind + "-" + strconv.Itoa(i)
}

// graph joins devices of one NUMA node in pairs by a switch, and others by slower links.
func (m *machineLayout) graph(resourceName string, unhealthy map[string]bool) (*nvtopo.Graph, error) {
	numa := m.numa[resourceName]
	gpus := make([]nvtopo.GPU, len(numa))
	first := 0
	if resourceName != gpu {
		first = 100
	}
	for i := range gpus {
		gpus[i] = nvtopo.GPU{UUID: deviceID(resourceName, i), Index: first + i, Model: "Test", NUMANode: numa[i]}
		if unhealthy[gpus[i].UUID] {
			gpus[i].Unhealthy = "broken"
		}
	}
	links := map[[2]int]nvtopo.Link{}
	for i := range gpus {
		for j := i + 1; j < len(gpus); j++ {
			class := nvtopo.Class{Kind: nvtopo.KindPCIe, PCIe: nvtopo.PCIeSYS}
			if numa[i] == numa[j] {
				class.PCIe = nvtopo.PCIePHB
				if i/2 == j/2 {
					class.PCIe = nvtopo.PCIePIX
				}
			}
			links[[2]int{i, j}] = nvtopo.NewLink(class, class.PCIe, 0, 0, false)
		}
	}
	g, err := nvtopo.NewGraph(gpus, m.nodes, nil, links)
	if err != nil {
		return nil, fmt.Errorf("the graph of a random machine: %w", err)
	}
	return g, nil
}

func (m *machineLayout) info() *cadvisorapi.MachineInfo {
	out := &cadvisorapi.MachineInfo{}
	sockets := map[int]bool{}
	for i := range m.nodes {
		n := &m.nodes[i]
		sockets[m.sockets[i]] = true
		node := cadvisorapi.Node{Id: n.ID, Memory: uint64(n.Memory)}
		for c, siblings := range n.Siblings {
			node.Cores = append(node.Cores, cadvisorapi.Core{Id: c, Threads: slices.Clone([]int(siblings)), SocketID: m.sockets[i]})
			out.NumCores += len(siblings)
		}
		for _, d := range n.Distances {
			node.Distances = append(node.Distances, uint64(d))
		}
		out.Topology = append(out.Topology, node)
		out.MemoryCapacity += node.Memory
	}
	out.NumSockets = len(sockets)
	return out
}

func (m *machineLayout) cpus() int {
	n := 0
	for i := range m.nodes {
		n += len(m.nodes[i].CPUs)
	}
	return n
}

// kubeletSetup is a random configuration of kubelet.
type kubeletSetup struct {
	policy, scope   string
	staticCPUs      bool
	staticMemory    bool
	topologyOptions map[string]string
	cpuOptions      map[string]string
	reserved        nvtopo.CPUSet
	unaligned       bool // devices without NUMA nodes
}

func (k *kubeletSetup) String() string {
	s := k.policy
	if k.policy != "none" {
		s += "/" + k.scope
	}
	return s
}

func randomSetup(r *rand.Rand, m *machineLayout) *kubeletSetup {
	k := &kubeletSetup{
		policy: []string{"none", "best-effort", "best-effort", "restricted", "restricted", "restricted", "single-numa-node", "single-numa-node"}[r.IntN(8)],
		scope:  []string{"container", "pod"}[r.IntN(2)], staticCPUs: r.IntN(2) == 0, staticMemory: r.IntN(3) == 0,
		topologyOptions: map[string]string{}, cpuOptions: map[string]string{}, unaligned: r.IntN(16) == 0,
	}
	// kubelet itself evaluates all combinations of the managers' hints: 255^3 on 8 nodes.
	if len(m.nodes) >= 6 && k.policy != "none" && k.staticCPUs && k.staticMemory {
		k.staticMemory = false
	}
	if len(m.nodes) >= 8 && k.policy != "none" && r.IntN(4) > 0 {
		k.staticCPUs, k.staticMemory = false, false
	}
	if r.IntN(3) == 0 {
		k.topologyOptions["prefer-closest-numa-nodes"] = "true"
	}
	if k.staticCPUs {
		for _, i := range r.Perm(m.cpus())[:1+r.IntN(2)] {
			k.reserved = append(k.reserved, i)
		}
		k.reserved = nvtopo.NewCPUSet(k.reserved...)
		for _, option := range []string{"full-pcpus-only", "distribute-cpus-across-numa", "strict-cpu-reservation"} {
			if r.IntN(4) == 0 {
				k.cpuOptions[option] = "true"
			}
		}
		if k.policy != "single-numa-node" && r.IntN(4) == 0 {
			k.cpuOptions["align-by-socket"] = "true"
		}
	}
	return k
}

// randomPod returns a pod that requests GPUs in up to five containers, sometimes with exclusive CPUs.
func randomPod(r *rand.Rand, i int, m *machineLayout) *v1.Pod {
	guaranteed := r.IntN(2) == 0
	most := min(len(m.numa[gpu]), []int{1, 2, 2, 4, 4, 8}[r.IntN(6)])
	container := func(name string) v1.Container {
		c := v1.Container{Name: name, Resources: v1.ResourceRequirements{Requests: v1.ResourceList{}, Limits: v1.ResourceList{}}}
		if n := r.IntN(most + 1); n > 0 && r.IntN(5) > 0 {
			c.Resources.Limits[gpu] = *resource.NewQuantity(int64(n), resource.DecimalSI)
			c.Resources.Requests[gpu] = c.Resources.Limits[gpu]
		}
		if n := r.IntN(len(m.numa[fpga])+1) / 2; n > 0 {
			c.Resources.Limits[fpga] = *resource.NewQuantity(int64(n), resource.DecimalSI)
			c.Resources.Requests[fpga] = c.Resources.Limits[fpga]
		}
		cpu := int64(1000 * (1 + r.IntN(4)))
		if r.IntN(4) == 0 { // more than one NUMA node has
			cpu = int64(1000 * (1 + r.IntN(2*len(m.nodes[0].CPUs))))
		}
		if r.IntN(5) == 0 {
			cpu += 500
		}
		memory := int64(1+r.IntN(3)) * gib / 2
		if r.IntN(6) == 0 {
			memory = int64(2+r.IntN(14)) * gib
		}
		if guaranteed {
			c.Resources.Limits["cpu"] = *resource.NewMilliQuantity(cpu, resource.DecimalSI)
			c.Resources.Limits["memory"] = *resource.NewQuantity(memory, resource.BinarySI)
			c.Resources.Requests["cpu"], c.Resources.Requests["memory"] = c.Resources.Limits["cpu"], c.Resources.Limits["memory"]
		} else if r.IntN(2) == 0 {
			c.Resources.Requests["cpu"] = *resource.NewMilliQuantity(cpu/4, resource.DecimalSI)
		}
		return c
	}
	p := podNumber(i)
	for j := range []int{1, 1, 1, 2, 2, 3}[r.IntN(6)] {
		p.Spec.Containers = append(p.Spec.Containers, container("app"+strconv.Itoa(j)))
	}
	for j := range []int{0, 0, 0, 1, 1, 2}[r.IntN(6)] {
		c := container("init" + strconv.Itoa(j))
		if r.IntN(3) == 0 {
			always := v1.ContainerRestartPolicyAlways
			c.RestartPolicy = &always
		}
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
	}
	return p
}
