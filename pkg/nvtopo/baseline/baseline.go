// SPDX-License-Identifier: Apache-2.0

package baseline

import (
	"math/rand/v2"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// Picker chooses k of the free GPUs; false when it finds no set of k.
type Picker interface {
	Name() string
	Pick(g *nvtopo.Graph, free nvtopo.Mask, k int) (nvtopo.Mask, bool)
}

// All returns every baseline; seed is the seed of the random one.
func All(seed uint64) []Picker {
	return []Picker{PairScore(), ClosestPair(), NearestNeighbour(), BestPartition(), Random(seed)}
}

// rule is a picker from a function that may assume 0 < k <= |free|.
type rule struct {
	name string
	pick func(g *nvtopo.Graph, free nvtopo.Mask, k int) (nvtopo.Mask, bool)
}

func (r rule) Name() string { return r.name }

func (r rule) Pick(g *nvtopo.Graph, free nvtopo.Mask, k int) (nvtopo.Mask, bool) {
	free &= nvtopo.FullMask(g.Len())
	if k <= 0 || k > free.Len() {
		return 0, k == 0
	}
	return r.pick(g, free, k)
}

// score returns HAMi's pair score: 10 for SYS to 50 for PIX, and 100 more for each NVLink, direct or
// through a switch. Source: HAMi, nvidia/links.go and calculate_score.go.
func score(g *nvtopo.Graph, i, j int) int {
	l := g.Link(i, j)
	return pcieScore(l) + 100*l.Class.Lanes
}

// directScore returns go-gpuallocator's pair score: the same without links to a switch. Source:
// besteffort_policy.go and links, GetNVLink.
func directScore(g *nvtopo.Graph, i, j int) int {
	l := g.Link(i, j)
	if l.Switched {
		return pcieScore(l)
	}
	return pcieScore(l) + 100*l.Class.Lanes
}

func pcieScore(l nvtopo.Link) int {
	if l.PCIe == nvtopo.PCIeUnknown {
		return 0
	}
	return 10 * int(nvtopo.PCIeSYS+1-l.PCIe)
}

// ClosestPair is Prim's greedy: the pair of greatest bandwidth, then always the GPU with the fastest link
// to any GPU taken. Source: the usual minimum spanning tree heuristic of topology-aware schedulers.
func ClosestPair() Picker {
	return rule{"prim from the closest pair", func(g *nvtopo.Graph, free nvtopo.Mask, k int) (nvtopo.Mask, bool) {
		taken := free & -free
		if k > 1 {
			best := int64(-1)
			for i := range free.All() {
				for j := range free.All() {
					if bw := g.Link(i, j).Bandwidth; i < j && bw > best {
						best, taken = bw, nvtopo.MaskOf(i, j)
					}
				}
			}
		}
		for taken.Len() < k {
			taken |= 1 << fastest(g, taken, free&^taken)
		}
		return taken, true
	}}
}

// NearestNeighbour starts at the lowest free GPU and continues with the GPU with the fastest link to the
// one taken last. Source: the nearest-neighbour heuristic of the travelling salesman problem.
func NearestNeighbour() Picker {
	return rule{"nearest neighbour", func(g *nvtopo.Graph, free nvtopo.Mask, k int) (nvtopo.Mask, bool) {
		last := free & -free
		taken := last
		for taken.Len() < k {
			last = 1 << fastest(g, last, free&^taken)
			taken |= last
		}
		return taken, true
	}}
}

// fastest returns the lowest GPU of to with the fastest link to any of from.
func fastest(g *nvtopo.Graph, from, to nvtopo.Mask) int {
	next, best := to.First(), int64(-1)
	for j := range to.All() {
		for i := range from.All() {
			if bw := g.Link(i, j).Bandwidth; bw > best {
				next, best = j, bw
			}
		}
	}
	return next
}

// Random takes any k free GPUs, the same for the same seed, free set and k.
func Random(seed uint64) Picker {
	return rule{"random", func(_ *nvtopo.Graph, free nvtopo.Mask, k int) (nvtopo.Mask, bool) {
		ms := free.Positions()
		rng := rand.New(rand.NewPCG(seed^uint64(free), uint64(k)))
		rng.Shuffle(len(ms), func(i, j int) { ms[i], ms[j] = ms[j], ms[i] })
		return nvtopo.MaskOf(ms[:k]...), true
	}}
}
