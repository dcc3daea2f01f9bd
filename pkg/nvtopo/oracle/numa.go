// SPDX-License-Identifier: Apache-2.0

package oracle

import "github.com/nvtopo/nvtopo/pkg/nvtopo"

// numaSpan is the NUMA criteria of the objective for a set.
type numaSpan struct {
	nodes    int
	distance int // greatest between two of the nodes; 0 for a single node
}

func (o *Oracle) span(s nvtopo.Mask) numaSpan {
	if known, ok := o.numa[s]; ok {
		return known
	}
	seen := map[int]bool{}
	var ids []int // one entry for each node, one for each GPU whose node is unknown
	for i := range s.All() {
		id := o.g.GPUs[i].NUMANode
		if id == nvtopo.UnknownNUMA || !seen[id] {
			ids = append(ids, id)
		}
		seen[id] = true
	}
	out := numaSpan{nodes: len(ids)}
	for x := range ids {
		for y := range ids {
			if x != y {
				out.distance = max(out.distance, o.g.NUMADistance(ids[x], ids[y]))
			}
		}
	}
	o.numa[s] = out
	return out
}

// fewestNodes returns the smallest number of NUMA nodes that any k GPUs of the machine span, taken or
// not.
func (o *Oracle) fewestNodes(k int) int {
	if known, ok := o.need[k]; ok {
		return known
	}
	least := k
	eachSubset(nvtopo.FullMask(o.g.Len()), k, func(s nvtopo.Mask) { least = min(least, o.span(s).nodes) })
	o.need[k] = least
	return least
}
