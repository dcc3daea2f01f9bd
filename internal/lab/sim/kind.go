// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// fourth is the group size of which stranded GPUs are counted.
const fourth = 4

// kind is one graph class of the cluster with equal GPUs, of which the same are degraded, with the
// replay's cached results for it.
type kind struct {
	number   uint64
	tables   *nvtopo.Tables
	degraded nvtopo.Mask

	levels map[nvtopo.Mask]*level
	packed map[nvtopo.Mask]int // most disjoint best-class groups of four, by free set
}

// level holds the measures of a machine with one free set.
type level struct {
	free  nvtopo.Mask
	count int64
	// rings is the best ring to be had, by position in sizes; noRing where the
	// machine has no room.
	rings []int64
	// counted are the free GPUs of a machine that has four or more, stranded those
	// of them outside the best packing with best-class groups of four.
	counted, stranded int64
}

const noRing = -1

func newKind(t *nvtopo.Tables, degraded nvtopo.Mask) *kind {
	return &kind{tables: t, degraded: degraded, levels: map[nvtopo.Mask]*level{}, packed: map[nvtopo.Mask]int{}}
}

// level returns the measures of a free set.
func (k *kind) level(free nvtopo.Mask, sizes *sizes) *level {
	l := k.levels[free]
	if l == nil {
		l = k.measure(free, sizes)
		k.levels[free] = l
	}
	return l
}

func (k *kind) measure(free nvtopo.Mask, sizes *sizes) *level {
	l := &level{free: free, count: int64(free.Len()), rings: make([]int64, len(sizes.gpus))}
	for i, n := range sizes.gpus {
		l.rings[i] = noRing
		if s, ok := k.tables.PickUsable(free, k.degraded, free, n, sizes.constraints[i]); ok {
			l.rings[i] = k.tables.Ring(s)
		}
	}
	if k.tables.Graph().Len() >= fourth {
		l.counted = l.count
		l.stranded = l.count - fourth*int64(k.pack(free&^k.degraded))
	}
	return l
}

// pack returns the greatest number of disjoint groups of four in a free set whose ring is the best for
// four. The lowest member is left over or in one of the groups; results for subsets are cached, and a
// packing that leaves fewer than four cannot be beaten.
func (k *kind) pack(free nvtopo.Mask) int {
	most := free.Len() / fourth
	if most == 0 {
		return 0
	}
	if n, ok := k.packed[free]; ok {
		return n
	}
	best, target := 0, k.tables.Best(fourth)
	low := free & -free
	rest := free &^ low
search:
	for r1 := rest; r1 != 0; r1 &= r1 - 1 {
		a := r1 & -r1
		for r2 := r1 &^ a; r2 != 0; r2 &= r2 - 1 {
			b := r2 & -r2
			for r3 := r2 &^ b; r3 != 0; r3 &= r3 - 1 {
				group := low | a | b | r3&-r3
				if k.tables.Ring(group) != target {
					continue
				}
				if best = max(best, 1+k.pack(free&^group)); best == most {
					break search
				}
			}
		}
	}
	if best < most {
		best = max(best, k.pack(rest))
	}
	k.packed[free] = best
	return best
}

// room returns the number of pods of n GPUs that the machine holds when only they are on it.
func (k *kind) room(free nvtopo.Mask, n int, con nvtopo.Constraint) int {
	for pods := 0; ; pods++ {
		s, ok := k.tables.PickUsable(free, k.degraded, free, n, con)
		if !ok {
			return pods
		}
		free &^= s
	}
}
