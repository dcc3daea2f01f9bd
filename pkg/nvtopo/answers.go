// SPDX-License-Identifier: Apache-2.0

package nvtopo

import (
	"math/bits"
	"slices"
)

// answers is a complete answer table: sets[k<<n|free] is the best set of k GPUs of free, 0 if no set
// passes.
type answers struct{ sets []uint16 }

// answerBuilder fills an answer table. A subset s of a free set f is compared by one 64-bit number: the
// rank of the residual it leaves, then its place within its tier, then s itself.
type answerBuilder struct {
	c    *classTables
	sets []uint16
	left []uint16 // rank of the residual of a set, by set
	ties []uint32 // (excluded - order) << 16 | set; 0 for a set that does not pass
}

// buildAnswers builds the answer table of a filter by a walk over all subsets of all free sets: O(3^n),
// about 43 million steps for 16 GPUs. It returns nil when done is closed first.
func (c *classTables) buildAnswers(done <-chan struct{}, f filter) *answers {
	b := answerBuilder{c: c, sets: make([]uint16, (c.n+1)<<c.n), left: ranks(c.residual), ties: make([]uint32, 1<<c.n)}
	for s := 1; s < len(b.ties); s++ {
		if c.passes(f, Mask(s), bits.OnesCount16(uint16(s))) {
			b.ties[s] = (excluded-uint32(c.order[s]))<<16 | uint32(s)
		}
	}
	for free := 1; free < 1<<c.n; free++ {
		// Often enough to stop within a millisecond, rarely enough to cost nothing.
		if free&0xff == 0 && closed(done) {
			return nil
		}
		b.fill(uint16(free))
	}
	return &answers{sets: b.sets}
}

func closed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// ranks returns the rank of each value among the distinct values in ascending order. 2^16 of them fit.
func ranks(values []int64) []uint16 {
	sorted := slices.Clone(values)
	slices.Sort(sorted)
	sorted = slices.Compact(sorted)
	out := make([]uint16, len(values))
	for i, v := range values {
		at, _ := slices.BinarySearch(sorted, v)
		out[i] = uint16(at)
	}
	return out
}

// fill computes the answers of one free set for all k. The best tier is known from the sets with one GPU
// less, whose answers are in it; only residuals and ties in that tier remain to be compared.
func (b *answerBuilder) fill(free uint16) {
	c := b.c
	var floor [32]uint32 // by k: the least tie that is still in the tier
	var best [32]uint64
	p := bits.OnesCount16(free)
	for k := 1; k < p; k++ {
		row := b.sets[k<<c.n : (k+1)<<c.n]
		end := uint16(excluded)
		for r := free; r != 0; r &= r - 1 {
			if s := row[free&^(r&-r)]; s != 0 {
				end = min(end, c.tierEnd[s])
			}
		}
		floor[k] = (excluded - uint32(end) + 1) << 16
	}
	for s := (free - 1) & free; s != 0; s = (s - 1) & free {
		k := bits.OnesCount16(s) & 31
		tie := b.ties[s]
		if tie < floor[k] {
			continue
		}
		best[k] = max(best[k], uint64(b.left[free&^s])<<32|uint64(tie))
	}
	best[p] = uint64(b.ties[free])
	for k := 1; k <= p; k++ {
		b.sets[k<<c.n|int(free)] = uint16(best[k])
	}
}
