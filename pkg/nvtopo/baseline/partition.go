// SPDX-License-Identifier: Apache-2.0

package baseline

import (
	"slices"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// padding stands for a missing GPU.
const padding = -1

// BestPartition is the best-effort policy of NVIDIA's device plugin: divide all
// free GPUs into sets of k (padded where k does not divide them; the padding
// stays together), take the division with the greatest sum of pair scores, and
// of it the best set. When that is the padded one there are fewer than k GPUs,
// and the picker finds nothing. One GPU is the first. Source: go-gpuallocator,
// besteffort_policy.go.
//
// It tries every division: 105 of 8 GPUs in pairs, 2 million of 16.
func BestPartition() Picker {
	return rule{"best partition (NVIDIA best-effort)", func(g *nvtopo.Graph, free nvtopo.Mask, k int) (nvtopo.Mask, bool) {
		if k == 1 {
			return free & -free, true
		}
		p := partitioner{g: g, k: k, most: -1}
		left := free.Positions()
		for len(left)%k != 0 {
			left = append(left, padding)
			p.pad++
		}
		p.divide(left, nil, 0)
		if slices.Contains(p.best, padding) {
			return 0, false
		}
		return nvtopo.MaskOf(p.best...), true
	}}
}

type partitioner struct {
	g      *nvtopo.Graph
	k, pad int
	best   []int // the best set of the best division so far
	most   int
}

func (p *partitioner) divide(left []int, sets [][]int, sum int) {
	if len(left) == 0 {
		if sum > p.most {
			p.most = sum
			p.best = slices.Clone(slices.MaxFunc(sets, func(a, b []int) int { return p.sum(a) - p.sum(b) }))
		}
		return
	}
	// The first GPU left is in one of the sets; try all companions for it.
	var choose func(from int, set []int)
	choose = func(from int, set []int) {
		if len(set) == p.k {
			if n := count(set); n == 0 || n == p.pad {
				rest := without(left, set)
				p.divide(rest, append(slices.Clone(sets), slices.Clone(set)), sum+p.sum(set))
			}
			return
		}
		for x := from; x < len(left); x++ {
			choose(x+1, append(set, left[x]))
			if left[x] == padding {
				return // all padding is equal
			}
		}
	}
	choose(1, append(make([]int, 0, p.k), left[0]))
}

func (p *partitioner) sum(set []int) int {
	s := 0
	for x, i := range set {
		for _, j := range set[:x] {
			if i != padding && j != padding {
				s += directScore(p.g, i, j)
			}
		}
	}
	return s
}

func count(set []int) int {
	n := 0
	for _, i := range set {
		if i == padding {
			n++
		}
	}
	return n
}

// without removes the members of set from left, each once.
func without(left, set []int) []int {
	rest := slices.Clone(left)
	for _, i := range set {
		at := slices.Index(rest, i)
		rest = slices.Delete(rest, at, at+1)
	}
	return rest
}
