// SPDX-License-Identifier: Apache-2.0

package nvtopo

import (
	"cmp"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
)

const (
	// exactGPUs is the largest graph that gets tables: 2^16 sets.
	exactGPUs = 16
	// eagerGPUs is the largest graph whose answer tables are cheap enough (3^8 steps, tens of microseconds)
	// to be built on first use.
	eagerGPUs = 8
	// excluded is the order of a set that does not pass; a size has 12 870 sets at most.
	excluded = 0xffff
)

// classTables holds everything computed once for a graph class. It is shared by every node of the class
// and immutable except for answer tables, which are published through atomic pointers once they are
// complete.
type classTables struct {
	matrix         // by value: Pick reads it through one pointer
	links   []Link // of the graph that it was built from
	weights Weights

	// For up to 16 GPUs, indexed by set.
	ring     []uint8 // index in steps, noRing below two GPUs
	residual []int64
	// order numbers the sets of one size by ring, NUMA nodes, NUMA distance (its
	// tier: all that comes before the residual), then PCIe ranks, pair sum and
	// members (the ties after it). tierEnd is the first number after the tier.
	order, tierEnd []uint16

	// For more than 16 GPUs.
	twins []Mask     // GPUs that may be swapped without changing the graph
	pairs [][2]uint8 // all pairs, most valuable group of two first
	gains []int64    // n x n, value of a group of two
	known remembered
	// searched receives the part of its budget that each search used; nil except in tests.
	searched func(spent int)

	// best is the best ring of k GPUs of the empty machine, by k; above 16 GPUs 0 until first used.
	best []atomic.Int64

	build   sync.Mutex                // serialises Prepare
	answers []atomic.Pointer[answers] // by variant
}

func newClassTables(g *Graph, w Weights) *classTables {
	c := &classTables{matrix: newMatrix(g), links: g.links, weights: w}
	c.best = make([]atomic.Int64, c.n+1)
	if c.n > exactGPUs {
		c.initLarge()
		return c
	}
	c.answers = make([]atomic.Pointer[answers], c.variants())
	c.ring = ringTable(c.n, c.bw, c.steps)
	keys, value := c.keys()
	c.residual = residualTable(c.n, &c.weights, value)
	c.rankSets(keys)
	if c.n <= eagerGPUs {
		c.answer(nil, c.variant(&Constraint{}))
	}
	return c
}

// setKey holds the criteria that order a set, except the residual.
type setKey struct {
	tier uint64 // ring step, NUMA nodes, NUMA distance: smaller is better
	pcie int64
	pair int64
	set  uint16
}

// keys returns the key and the group value of every set, each computed from the set without its lowest
// member.
func (c *classTables) keys() ([]setKey, []int64) {
	keys := make([]setKey, 1<<c.n)
	value := make([]int64, 1<<c.n)
	dist := make([]int, 1<<c.n)
	nodes := make([]uint16, 1<<c.n)
	for s := 1; s < len(keys); s++ {
		rest := s & (s - 1)
		low := bits.TrailingZeros16(uint16(s))
		k := &keys[s]
		k.set = uint16(s)
		k.pcie, k.pair, dist[s] = keys[rest].pcie, keys[rest].pair, dist[rest]
		row := low * c.n
		for r := rest; r != 0; r &= r - 1 {
			p := row + bits.TrailingZeros16(uint16(r))
			k.pcie += c.rank[p]
			k.pair += c.bw[p]
			dist[s] = max(dist[s], c.dist[p])
		}
		nodes[s] = nodes[rest] | 1<<c.node[low]
		n := bits.OnesCount16(nodes[s])
		k.tier = uint64(c.ring[s])<<40 | uint64(n)<<32 | uint64(uint32(dist[s]))
		if size := bits.OnesCount16(uint16(s)); size >= 2 && size <= maxGroup {
			value[s] = groupValue(c.steps[c.ring[s]], n, dist[s], k.pcie)
		}
	}
	return keys, value
}

// rankSets fills order, tierEnd and best.
func (c *classTables) rankSets(keys []setKey) {
	c.order = make([]uint16, len(keys))
	c.tierEnd = make([]uint16, len(keys))
	bySize := make([][]setKey, c.n+1)
	for _, k := range keys[1:] {
		size := bits.OnesCount16(k.set)
		bySize[size] = append(bySize[size], k)
	}
	for size, sets := range bySize {
		slices.SortFunc(sets, func(a, b setKey) int {
			switch {
			case a.tier != b.tier:
				return cmp.Compare(a.tier, b.tier)
			case a.pcie != b.pcie:
				return cmp.Compare(a.pcie, b.pcie)
			case a.pair != b.pair:
				return cmp.Compare(b.pair, a.pair)
			}
			// The set with the lowest differing position is the smaller list.
			return cmp.Compare(bits.Reverse16(b.set), bits.Reverse16(a.set))
		})
		end := len(sets)
		for i := len(sets) - 1; i >= 0; i-- {
			if i+1 < len(sets) && sets[i].tier != sets[i+1].tier {
				end = i + 1
			}
			c.order[sets[i].set], c.tierEnd[sets[i].set] = uint16(i), uint16(end)
		}
		if size >= 2 {
			c.best[size].Store(c.steps[c.ring[sets[0].set]])
		}
	}
}

// answer returns the answer table of a variant, building it when it is missing; nil when done is closed
// first.
func (c *classTables) answer(done <-chan struct{}, variant int) *answers {
	slot := &c.answers[variant]
	if a := slot.Load(); a != nil {
		return a
	}
	a := c.buildAnswers(done, c.filter(variant))
	if a == nil {
		return nil
	}
	// Another builder may have been first: equal inputs give an equal table.
	slot.CompareAndSwap(nil, a)
	return slot.Load()
}

// enumerate picks without an answer table: k of avail, with the residual taken of free, among the sets
// that keep accepts (nil: all); 0 when no set passes. keep is called last because it is the most
// expensive.
func (c *classTables) enumerate(free, avail Mask, k int, f filter, keep func(Mask) bool) Mask {
	var walk combinations
	var best Mask
	var bestLeft int64
	end := uint16(excluded) // of the tier of best
	for t := walk.start(avail, k); t != 0; t = walk.next(t) {
		o := c.order[t]
		if o >= end {
			continue
		}
		left := c.residual[free&^t]
		if best != 0 && c.tierEnd[t] == end && (left < bestLeft || left == bestLeft && o > c.order[best]) {
			continue
		}
		if c.passes(f, t, k) && (keep == nil || keep(t)) {
			best, bestLeft, end = t, left, c.tierEnd[t]
		}
	}
	return best
}

// ringStep returns the index in steps of the ring bottleneck of a set of two or more.
func (c *classTables) ringStep(s Mask) int {
	if c.n <= exactGPUs {
		return int(c.ring[s])
	}
	return c.largeStep(s)
}

func (c *classTables) bytes() int {
	m := &c.matrix
	total := 8*(len(m.bw)+len(m.lat)+len(m.rank)+len(m.dist)+len(m.steps)+len(m.stepLat)) + 24*len(m.class) + len(m.node) +
		8*len(m.ok)*(m.n+3) + 8*len(m.minNodes) + len(c.ring) + 8*len(c.residual) + 2*len(c.order) + 2*len(c.tierEnd) +
		8*(len(c.twins)+len(c.gains)+len(c.best)+len(c.answers)) + 2*len(c.pairs)
	for i := range c.answers {
		if a := c.answers[i].Load(); a != nil {
			total += 2 * len(a.sets)
		}
	}
	return total + c.known.bytes()
}
