// SPDX-License-Identifier: Apache-2.0

package nvtopo

import (
	"cmp"
	"math"
	"slices"
)

// Affinity is the position of a set of GPUs in the machine: NUMA nodes, nearest CPUs and distance.
type Affinity struct {
	NUMANodes []int  // known nodes, ascending
	Unknown   Mask   // GPUs whose node is not known
	CPUs      CPUSet // CPUs nearest to the set
	Distance  int    // greatest NUMA distance between two of its GPUs; LocalDistance on one node
}

// Affinity returns the NUMA affinity of a set. A GPU's CPUs are those of its NUMA node; if the node is
// not known or has no CPUs, those that its driver reports.
func (g *Graph) Affinity(set Mask) Affinity {
	a := Affinity{Distance: LocalDistance}
	set &= FullMask(g.Len())
	for i := range set.All() {
		d := &g.GPUs[i]
		cpus := d.CPUs
		if d.NUMANode == UnknownNUMA {
			a.Unknown |= 1 << i
		} else {
			a.NUMANodes = append(a.NUMANodes, d.NUMANode)
			if n := g.numaNode(d.NUMANode); n != nil && len(n.CPUs) > 0 {
				cpus = n.CPUs
			}
		}
		a.CPUs = a.CPUs.Union(cpus)
		for j := range i {
			if set.Has(j) {
				a.Distance = max(a.Distance, g.gpuDistance(i, j))
			}
		}
	}
	slices.Sort(a.NUMANodes)
	a.NUMANodes = slices.Compact(a.NUMANodes)
	return a
}

func (g *Graph) numaNode(id int) *NUMANode {
	i := slices.IndexFunc(g.NUMANodes, func(n NUMANode) bool { return n.ID == id })
	if i < 0 {
		return nil
	}
	return &g.NUMANodes[i]
}

// NearestCPUs takes n of the free CPUs for GPUs on the given NUMA nodes: from those nodes in ascending
// order, then from the others by their distance to the nearest of them, last from CPUs of no listed node.
// On a node, whole free cores come first, then hyper-threads of partly taken cores, and then a core is
// split. It returns nil when fewer than n are free.
func (g *Graph) NearestCPUs(nodes []int, free CPUSet, n int) CPUSet {
	if n <= 0 || len(free) < n {
		return nil
	}
	return NewCPUSet(g.nearest(make(CPUSet, 0, n), nodes, free, newCPUBits(free), n)...)
}

// nearest appends n CPUs of left, a subset of free, in the order of NearestCPUs.
func (g *Graph) nearest(out CPUSet, nodes []int, free CPUSet, left cpuBits, n int) CPUSet {
	type ranked struct {
		distance int
		node     *NUMANode
	}
	order := make([]ranked, 0, len(g.NUMANodes))
	for i := range g.NUMANodes {
		node := &g.NUMANodes[i]
		r := ranked{math.MaxInt, node}
		for _, id := range nodes {
			d := -1 // a node of the set, even if its SLIT row is irregular
			if id != node.ID {
				d = g.NUMADistance(id, node.ID)
			}
			r.distance = min(r.distance, d)
		}
		order = append(order, r)
	}
	slices.SortStableFunc(order, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(a.distance, b.distance), cmp.Compare(a.node.ID, b.node.ID))
	})
	n += len(out)
	for _, r := range order {
		if len(out) < n {
			out = takeCPUs(out, r.node.CPUs, r.node.Siblings, left, n-len(out))
		}
	}
	if len(out) < n {
		var listed []CPUSet
		for i := range g.NUMANodes {
			listed = append(listed, g.NUMANodes[i].CPUs)
		}
		out = takeCPUs(out, free.Minus(listed...), nil, left, n-len(out))
	}
	return out
}

// SpreadCPUs takes n of the free CPUs in equal parts nearest to each of the NUMA nodes, in their order,
// so that every GPU of a set has some beside it; the remainder goes to the later nodes. Without nodes it
// takes any CPUs. It returns nil when fewer than n are free.
func (g *Graph) SpreadCPUs(nodes []int, free CPUSet, n int) CPUSet {
	if n <= 0 || len(free) < n {
		return nil
	}
	if len(nodes) == 0 {
		return g.NearestCPUs(nil, free, n)
	}
	out, left := make(CPUSet, 0, n), newCPUBits(free)
	for i := range nodes {
		have, part := len(out), (n-len(out))/(len(nodes)-i)
		if part == 0 {
			continue
		}
		out = g.nearest(out, nodes[i:i+1], free, left, part)
		slices.Sort(out[have:])
		out = append(out[:have], slices.Compact(out[have:])...)
		for _, c := range out[have:] {
			left.remove(c)
		}
	}
	slices.Sort(out)
	return out
}

// takeCPUs appends up to n free CPUs of one node in the order of NearestCPUs.
func takeCPUs(out, cpus CPUSet, siblings []CPUSet, free cpuBits, n int) CPUSet {
	n += len(out)
	var partly, split []CPUSet
	for _, core := range coresOf(cpus, siblings) {
		got := core
		if slices.ContainsFunc(core, func(c int) bool { return !free.has(c) }) {
			got = slices.DeleteFunc(slices.Clone(core), func(c int) bool { return !free.has(c) })
		}
		switch {
		case len(got) == 0:
		case len(got) < len(core):
			partly = append(partly, got)
		case len(out)+len(got) > n:
			split = append(split, got)
		default:
			if out = append(out, got...); len(out) == n {
				return out
			}
		}
	}
	slices.SortStableFunc(partly, firstCPU)
	for _, core := range append(partly, split...) {
		out = append(out, core[:min(len(core), n-len(out))]...)
	}
	return out
}

// coresOf returns the cores of a node in the order of their first CPU. A CPU without known siblings is a
// core of its own.
func coresOf(cpus CPUSet, siblings []CPUSet) []CPUSet {
	known := 0
	for _, core := range siblings {
		known += len(core)
	}
	empty := slices.ContainsFunc(siblings, func(core CPUSet) bool { return len(core) == 0 })
	if !empty && known == len(cpus) && slices.IsSortedFunc(siblings, firstCPU) {
		return siblings
	}
	cores := slices.DeleteFunc(slices.Clone(siblings), func(core CPUSet) bool { return len(core) == 0 })
	inCore := newCPUBits(siblings...)
	for i, c := range cpus {
		if !inCore.has(c) {
			cores = append(cores, cpus[i:i+1])
		}
	}
	slices.SortStableFunc(cores, firstCPU)
	return cores
}

func firstCPU(a, b CPUSet) int { return cmp.Compare(a[0], b[0]) }
