// SPDX-License-Identifier: Apache-2.0

package nvtopo

import "math/bits"

// combinations iterates over the subsets of one size of a set without allocating.
//
// The next subset is found by a carry that runs through the gaps of the set
// (Gosper's step with the positions outside the set filled with ones), after
// which the members that the carry freed return to the lowest places.
type combinations struct {
	within Mask
	low    [MaxGPUs + 1]Mask // low[i]: the i lowest members of within
	k      int
}

// start prepares the walk and returns the first subset; 1 <= k <= |within|.
func (c *combinations) start(within Mask, k int) Mask {
	c.within, c.k = within, k
	var m Mask
	for i, rest := 1, within; i <= k; i++ {
		m |= rest & -rest
		rest &= rest - 1
		c.low[i] = m
	}
	return m
}

// next returns the subset after s, 0 after the last.
func (c *combinations) next(s Mask) Mask {
	r := ((s | ^c.within) + s&-s) & c.within
	if r == 0 {
		return 0
	}
	return r | c.low[c.k-bits.OnesCount64(uint64(r))]
}
