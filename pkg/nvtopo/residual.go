// SPDX-License-Identifier: Apache-2.0

package nvtopo

import "math/bits"

const (
	// valueScale converts kB/s to the unit of group values, 10^-6 kB/s, so that the published factors leave
	// whole numbers on real machines.
	valueScale = 1_000_000
	// maxRing bounds the bandwidth that enters a group value (10 TB/s), so that no
	// graph read from outside can overflow.
	maxRing = 10_000_000_000
	// farDistance is the NUMA distance above which a group loses another 5 %.
	farDistance = 20
)

// mulDiv returns a*b/c, truncated, with a 128-bit product. All are >= 0, and
// the quotient must fit in 63 bits.
func mulDiv(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	q, _ := bits.Div64(hi, lo, uint64(c))
	return int64(q)
}

// groupValue returns the published value of a group in 10^-6 kB/s: ring · 0.9^(NUMA
// nodes-1) · (0.95 when two of them are far apart) · (1 - 0.0005 · PCIe ranks),
// each step truncated.
func groupValue(ring int64, nodes, distance int, pcie int64) int64 {
	v := min(max(ring, 0), maxRing) * valueScale
	for range nodes - 1 {
		v = mulDiv(v, 9, 10)
	}
	if distance > farDistance {
		v = mulDiv(v, 19, 20)
	}
	return mulDiv(v, max(0, 2000-pcie), 2000)
}

// weighted returns one term of the residual, w_g · g · V_g, truncated.
func (w *Weights) weighted(g int, packed int64) int64 {
	return mulDiv(packed, max(0, w.Group[g])*int64(g), 1000)
}

// residualTable returns R for every free set of up to 16 GPUs. value is the group value of each set of
// 2…8 GPUs.
func residualTable(n int, w *Weights, value []int64) []int64 {
	r := make([]int64, 1<<n)
	packed := make([]int64, 1<<n)
	for g := 2; g <= min(n, maxGroup); g++ {
		if w.Group[g] <= 0 {
			continue
		}
		packings(g, value, packed)
		for s := range r {
			r[s] += w.weighted(g, packed[s])
		}
	}
	return r
}

// packings fills packed[s] with V_g: the best total value of disjoint groups of
// g inside s. Either the lowest member of s is left over or it belongs to one
// of the groups. Sets with room for one group only take the better of
// themselves and their subsets, which saves most of the walk for large g.
func packings(g int, value, packed []int64) {
	var c combinations
	for s := range packed {
		set := Mask(s)
		p := set.Len()
		var best int64
		switch {
		case p < g:
		case p == g:
			best = value[s]
		case p < 2*g:
			for r := set; r != 0; r &= r - 1 {
				best = max(best, packed[set&^(r&-r)])
			}
		default:
			low := set & -set
			rest := set &^ low
			best = packed[rest]
			for t := c.start(rest, g-1); t != 0; t = c.next(t) {
				best = max(best, value[t|low]+packed[rest&^t])
			}
		}
		packed[s] = best
	}
}
