// SPDX-License-Identifier: Apache-2.0

package nvtopo

import (
	"cmp"
	"math"
	"slices"
)

// Affinity is where a set of GPUs sits in the machine.
type Affinity struct {
	NUMANodes []int  // known nodes, ascending
	Unknown   Mask   // GPUs whose node is not known
	CPUs      CPUSet // CPUs nearest to the set
	Distance  int    // greatest NUMA distance between two of its GPUs; LocalDistance on one node
}

// Affinity returns the NUMA affinity of a set. A GPU's CPUs are those of its
// NUMA node, and where that is not known or has none, those its driver names.
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

// NearestCPUs takes n of the free CPUs for GPUs on the given NUMA nodes: from
// those nodes in ascending order, then from the others by their distance to the
// nearest of them, last from CPUs of no listed node. On a node whole cores come
// before hyper-threads of cores that are partly taken, and those before a core
// is split. It returns nil when fewer than n are free.
func (g *Graph) NearestCPUs(nodes []int, free CPUSet, n int) CPUSet {
	if n <= 0 || len(free) < n {
		return nil
	}
	type ranked struct {
		distance int
		node     *NUMANode
	}
	order := make([]ranked, 0, len(g.NUMANodes))
	for i := range g.NUMANodes {
		node := &g.NUMANodes[i]
		r := ranked{math.MaxInt, node}
		for _, id := range nodes {
			d := -1 // a node of the set, even where a SLIT row is odd
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
	left := newCPUBits(free)
	var out CPUSet
	for _, r := range order {
		if len(out) < n {
			out = append(out, takeCPUs(r.node.CPUs, r.node.Siblings, left, n-len(out))...)
		}
	}
	if len(out) < n {
		var listed []CPUSet
		for i := range g.NUMANodes {
			listed = append(listed, g.NUMANodes[i].CPUs)
		}
		out = append(out, takeCPUs(free.Minus(listed...), nil, left, n-len(out))...)
	}
	return NewCPUSet(out...)
}

// takeCPUs takes up to n free CPUs of one node, see NearestCPUs. A CPU without
// known siblings is a core of its own.
func takeCPUs(cpus CPUSet, siblings []CPUSet, free cpuBits, n int) CPUSet {
	var whole, partly []CPUSet
	add := func(core CPUSet) {
		got := core
		if slices.ContainsFunc(core, func(c int) bool { return !free.has(c) }) {
			got = nil
			for _, c := range core {
				if free.has(c) {
					got = append(got, c)
				}
			}
		}
		switch len(got) {
		case 0:
		case len(core):
			whole = append(whole, got)
		default:
			partly = append(partly, got)
		}
	}
	for _, core := range siblings {
		add(core)
	}
	inCore := newCPUBits(siblings...)
	for i, c := range cpus {
		if !inCore.has(c) {
			add(cpus[i : i+1])
		}
	}
	byFirst := func(a, b CPUSet) int { return cmp.Compare(a[0], b[0]) }
	slices.SortStableFunc(whole, byFirst)
	slices.SortStableFunc(partly, byFirst)

	var out CPUSet
	var split []CPUSet
	for _, core := range whole {
		if len(out)+len(core) <= n {
			out = append(out, core...)
		} else {
			split = append(split, core)
		}
	}
	for _, core := range append(partly, split...) {
		out = append(out, core[:min(len(core), max(0, n-len(out)))]...)
	}
	return out
}
