// SPDX-License-Identifier: Apache-2.0

package nvtopo

import "math/bits"

// PickWhere is Pick among the sets that keep also accepts: demands that are not
// a property of the graph, such as free CPUs beside the set. Up to 16 GPUs it
// is exact, C(|free|, k) steps. Above, it takes the best set within the fewest
// NUMA nodes for which keep accepts the best set of those nodes; it may then
// miss a set that only a worse choice inside the same nodes would satisfy.
func (t *Tables) PickWhere(free, allowed Mask, k int, con Constraint, keep func(Mask) bool) (Mask, bool) {
	c := t.c
	free &= c.all
	avail := free & allowed
	if k <= 0 || k > avail.Len() {
		return 0, k == 0
	}
	var s Mask
	var ok bool
	if c.n > exactGPUs {
		s, ok = t.pickByNodes(free, avail, k, con, keep)
	} else {
		s, ok = c.enumerateWhere(free, avail, k, c.filter(con), keep)
	}
	if !ok || k > 1 && con.MinBandwidth > 0 && t.Ring(s) < con.MinBandwidth {
		return 0, false
	}
	return s, true
}

// enumerateWhere is enumerate with one more demand, asked last because it is
// the dearest.
func (c *classTables) enumerateWhere(free, avail Mask, k int, f filter, keep func(Mask) bool) (Mask, bool) {
	var walk combinations
	var best Mask
	var bestLeft int64
	for s := walk.start(avail, k); s != 0; s = walk.next(s) {
		if !c.passes(f, s, k) {
			continue
		}
		left := c.residual[free&^s]
		if best != 0 {
			// A tier is named by its end, so equal ends are one tier.
			mine, theirs := c.tierEnd[s], c.tierEnd[best]
			worse := mine > theirs || mine == theirs && (left < bestLeft || left == bestLeft && c.order[s] > c.order[best])
			if worse {
				continue
			}
		}
		if keep(s) {
			best, bestLeft = s, left
		}
	}
	return best, best != 0
}

// pickByNodes tries ever more NUMA nodes, and of as many the best ring.
func (t *Tables) pickByNodes(free, avail Mask, k int, con Constraint, keep func(Mask) bool) (Mask, bool) {
	var groups []Mask // GPUs of each NUMA node, in the order of the node's first GPU
	seen := map[uint8]int{}
	for i := range avail.All() {
		id := t.c.node[i]
		g, ok := seen[id]
		if !ok {
			g = len(groups)
			seen[id] = g
			groups = append(groups, 0)
		}
		groups[g] |= 1 << i
	}
	var best Mask
	limit := uint(min(len(groups), exactGPUs))
	for size := 1; size <= int(limit) && best == 0; size++ {
		for nodes := uint64(1); nodes < 1<<limit; nodes++ {
			if bits.OnesCount64(nodes) != size {
				continue
			}
			var in Mask
			for i := range Mask(nodes).All() {
				in |= groups[i]
			}
			if s, ok := t.Pick(free, in, k, con); ok && keep(s) && (best == 0 || t.Ring(s) > t.Ring(best)) {
				best = s
			}
		}
	}
	return best, best != 0
}
