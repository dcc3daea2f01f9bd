// SPDX-License-Identifier: Apache-2.0

package gpunode

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
)

// Machine is the machine of the catalogue whose GPUs the node simulates: eight on two NUMA nodes, with
// links of several kinds, so that a choice matters and a wrong one is visible.
const Machine = "dgx1-v100"

// Resource is the extended resource of the GPUs.
const Resource = "nvidia.com/gpu"

// Graph returns the link graph of the node: the machine's, with CPU 0 as NUMA node 0 and CPU 1 as NUMA
// node 1, because those are the CPUs that even a small machine has.
func Graph(node string) (*nvtopo.Graph, error) {
	m, err := machine.Lookup(Machine)
	if err != nil {
		return nil, fmt.Errorf("the simulated machine: %w", err)
	}
	g, err := m.GraphFor(node)
	if err != nil {
		return nil, fmt.Errorf("the simulated machine: %w", err)
	}
	cpus := map[int]nvtopo.CPUSet{}
	nodes := slices.Clone(g.NUMANodes)
	for i := range nodes {
		list, err := nvtopo.ParseCPUList(CPUs(nodes[i].ID))
		if err != nil {
			return nil, fmt.Errorf("the simulated machine: %w", err)
		}
		nodes[i].CPUs, nodes[i].Siblings = list, nil
		cpus[nodes[i].ID] = list
	}
	gpus := slices.Clone(g.GPUs)
	for i := range gpus {
		gpus[i].CPUs = cpus[gpus[i].NUMANode]
	}
	links := map[[2]int]nvtopo.Link{}
	for i := range gpus {
		for j := i + 1; j < len(gpus); j++ {
			links[[2]int{i, j}] = g.Link(i, j)
		}
	}
	out, err := nvtopo.NewGraph(gpus, nodes, slices.Clone(g.NICs), maps.Clone(links))
	if err != nil {
		return nil, fmt.Errorf("the simulated machine: %w", err)
	}
	return out, nil
}

// CPUs returns the CPUs of a simulated NUMA node, in the kernel's list format.
func CPUs(numaNode int) string { return strconv.Itoa(numaNode) }
