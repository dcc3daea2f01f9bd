// SPDX-License-Identifier: Apache-2.0

package nvtopo

import (
	"iter"
	"math/bits"
)

// MaxGPUs is the most accelerators of one graph: the width of a Mask.
const MaxGPUs = 64

// Mask is a set of GPU positions of one graph: bit i stands for GPUs[i].
type Mask uint64

// MaskOf returns the set of the given positions.
func MaskOf(positions ...int) Mask {
	var m Mask
	for _, p := range positions {
		m |= 1 << p
	}
	return m
}

// FullMask returns the set {0, …, n-1}.
func FullMask(n int) Mask {
	if n >= MaxGPUs {
		return ^Mask(0)
	}
	return 1<<n - 1
}

// Len returns the number of members.
func (m Mask) Len() int { return bits.OnesCount64(uint64(m)) }

// Has reports whether position i is a member.
func (m Mask) Has(i int) bool { return m>>i&1 != 0 }

// First returns the lowest member, 64 when empty.
func (m Mask) First() int { return bits.TrailingZeros64(uint64(m)) }

// Positions returns the members in ascending order.
func (m Mask) Positions() []int {
	out := make([]int, 0, m.Len())
	for i := range m.All() {
		out = append(out, i)
	}
	return out
}

// All yields the members in ascending order.
func (m Mask) All() iter.Seq[int] {
	return func(yield func(int) bool) {
		for r := m; r != 0; r &= r - 1 {
			if !yield(r.First()) {
				return
			}
		}
	}
}

// LexLess reports whether m comes before o, a set of equal size, by their ascending member lists.
func (m Mask) LexLess(o Mask) bool {
	d := m ^ o
	return d&-d&m != 0
}
