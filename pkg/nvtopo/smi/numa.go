// SPDX-License-Identifier: Apache-2.0

package smi

import (
	"cmp"
	"slices"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// placeGPUs sets the CPUs and the NUMA node of every GPU from the affinity columns, and returns the
// machine's NUMA nodes: those of numactl if known, else those that the matrix shows.
func (m *matrix) placeGPUs(gpus []nvtopo.GPU, known []nvtopo.NUMANode) ([]nvtopo.NUMANode, error) {
	for i := range gpus {
		a, err := m.readAffinity(i)
		if err != nil {
			return nil, err
		}
		gpus[i].CPUs = a.cpus
		if gpus[i].NUMANode, err = a.node(known); err != nil {
			return nil, err
		}
	}
	if !m.columns.numa {
		m.placeByCPUs(gpus, known)
	}
	if len(known) > 0 {
		return slices.Clone(known), nil
	}
	return nodesOf(gpus), nil
}

// node returns the one NUMA node of the "NUMA Affinity" cell. Several nodes ("0-3", or "0,3-9" where GPU
// memory is NUMA nodes too) are resolved with numactl: nodes without CPUs are dropped.
func (a *affinity) node(known []nvtopo.NUMANode) (int, error) {
	switch len(a.numa) {
	case 0:
		return nvtopo.UnknownNUMA, nil
	case 1:
		id := a.numa[0]
		if len(known) > 0 && !slices.ContainsFunc(known, func(n nvtopo.NUMANode) bool { return n.ID == id }) {
			return 0, a.line.errorf(a.numaAt, "NUMA node %d is not among the %d nodes that numactl lists", id, len(known))
		}
		return id, nil
	}
	var ids []int
	for _, n := range known {
		if len(n.CPUs) > 0 && slices.Contains(a.numa, n.ID) {
			ids = append(ids, n.ID)
		}
	}
	if len(ids) != 1 {
		return nvtopo.UnknownNUMA, nil
	}
	return ids[0], nil
}

// placeByCPUs places GPUs of old drivers, whose matrix has no NUMA column but prints as CPU affinity the
// CPUs of the GPU's own NUMA node.
//
// With numactl, a GPU is on the node that has exactly its CPUs. Without, GPUs with equal lists are on one
// node, numbered by nodeNumbers, unless the matrix contradicts it: every GPU must have a list, different
// lists must share no CPU, and no pair with one list may be SYS apart. A single list is used only if all
// pairs are on one node by their levels, since a container's CPU limit makes all lists equal.
func (m *matrix) placeByCPUs(gpus []nvtopo.GPU, known []nvtopo.NUMANode) {
	if len(known) > 0 {
		for i := range gpus {
			k := slices.IndexFunc(known, func(n nvtopo.NUMANode) bool { return slices.Equal(n.CPUs, gpus[i].CPUs) })
			if k >= 0 && len(gpus[i].CPUs) > 0 {
				gpus[i].NUMANode = known[k].ID
			}
		}
		return
	}
	groups, ok := m.cpuGroups(gpus)
	if !ok {
		return
	}
	numbers := nodeNumbers(groups)
	for i := range gpus {
		k := slices.IndexFunc(groups, func(g nvtopo.CPUSet) bool { return slices.Equal(g, gpus[i].CPUs) })
		gpus[i].NUMANode = numbers[k]
	}
}

// nodeNumbers numbers the nodes that have these CPUs, given by their lowest CPU. If each has one run of n
// CPUs that starts at a multiple of n, the machine numbers evenly, and the run's position gives the
// number even if nodes without a GPU lie between (Kunpeng servers: 0-23, 48-71, … are nodes 0, 2, …).
// Otherwise 0, 1, ….
func nodeNumbers(groups []nvtopo.CPUSet) []int {
	counted, even := make([]int, len(groups)), make([]int, len(groups))
	n := len(groups[0])
	whole := true
	for i, g := range groups {
		counted[i], even[i] = i, g[0]/n
		whole = whole && len(g) == n && g[n-1]-g[0] == n-1 && g[0]%n == 0 && even[i] <= maxNUMAID
	}
	if whole {
		return even
	}
	return counted
}

// cpuGroups returns the distinct CPU lists by their lowest CPU, and whether they may be used as NUMA
// nodes.
func (m *matrix) cpuGroups(gpus []nvtopo.GPU) (groups []nvtopo.CPUSet, ok bool) {
	for i := range gpus {
		mine := gpus[i].CPUs
		if len(mine) == 0 {
			return nil, false
		}
		if !slices.ContainsFunc(groups, func(g nvtopo.CPUSet) bool { return slices.Equal(g, mine) }) {
			groups = append(groups, mine)
		}
	}
	slices.SortFunc(groups, func(a, b nvtopo.CPUSet) int { return cmp.Compare(a[0], b[0]) })
	var all nvtopo.CPUSet
	total := 0
	for _, g := range groups {
		all, total = all.Union(g), total+len(g)
	}
	if total != len(all) {
		return nil, false
	}
	for i := range gpus {
		for j := range i {
			if !slices.Equal(gpus[i].CPUs, gpus[j].CPUs) {
				continue
			}
			class := m.rows[i].cells[j].class
			if class.PCIe == nvtopo.PCIeSYS || len(groups) == 1 && class.IsFabric() {
				return nil, false
			}
		}
	}
	return groups, true
}

// nodesOf returns the NUMA nodes that the GPUs are on. A node has the CPUs of its GPUs' affinity, unless
// another node has one of them too: then the lists are clipped to the caller's CPUs and are not used.
func nodesOf(gpus []nvtopo.GPU) []nvtopo.NUMANode {
	byID := map[int]nvtopo.CPUSet{}
	for i := range gpus {
		if id := gpus[i].NUMANode; id != nvtopo.UnknownNUMA {
			byID[id] = byID[id].Union(gpus[i].CPUs)
		}
	}
	var all nvtopo.CPUSet
	total := 0
	var nodes []nvtopo.NUMANode
	for id, cpus := range byID {
		nodes = append(nodes, nvtopo.NUMANode{ID: id, CPUs: cpus})
		all, total = all.Union(cpus), total+len(cpus)
	}
	if total != len(all) {
		for i := range nodes {
			nodes[i].CPUs = nil
		}
	}
	slices.SortFunc(nodes, func(a, b nvtopo.NUMANode) int { return cmp.Compare(a.ID, b.ID) })
	return nodes
}
