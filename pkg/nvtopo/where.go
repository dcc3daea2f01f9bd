// SPDX-License-Identifier: Apache-2.0

package nvtopo

// PickWhere is Pick among the sets that keep also accepts: demands that are not
// a property of the graph, such as free CPUs beside the set. Every set is a
// candidate, so it costs C(|free|, k) steps up to 16 GPUs. Above, keep must
// depend only on how many GPUs the set has on which NUMA nodes.
func (t *Tables) PickWhere(free, allowed Mask, k int, con Constraint, keep func(Mask) bool) (Mask, bool) {
	c := t.c
	free &= c.all
	avail := free & allowed
	if k <= 0 || k > avail.Len() {
		return 0, k == 0
	}
	f := c.filter(c.variant(&con))
	if c.n > exactGPUs {
		return t.fastEnough(c.branchAndBound(free, avail, k, f, keep), k, &con)
	}
	return t.fastEnough(c.enumerate(free, avail, k, f, keep), k, &con)
}
