// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"math"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// ring is a Hamiltonian ring and the bandwidth of its weakest link in kB/s.
type ring struct {
	order []int
	kBps  int64
}

// Ring returns the ring over a set whose weakest link is the fastest possible,
// and that link's bandwidth in kB/s. Two GPUs have one link; one GPU has none,
// and its bandwidth is 0. Among equal rings it is the first in lexicographical
// order of positions.
func Ring(g *nvtopo.Graph, set nvtopo.Mask) (order []int, kBps int64) { return New(g).Ring(set) }

// Ring returns the ring over a set whose weakest link is the fastest possible,
// and that link's bandwidth in kB/s.
func (o *Oracle) Ring(set nvtopo.Mask) (order []int, kBps int64) {
	r := o.ring(set)
	return append([]int(nil), r.order...), r.kBps
}

// Bottleneck returns the weakest link of a ring in the given order; the first of several equally slow
// ones. It is the zero Link for one GPU.
func Bottleneck(g *nvtopo.Graph, order []int) nvtopo.Link {
	var weakest nvtopo.Link
	for i := range order {
		l := g.Link(order[i], order[(i+1)%len(order)])
		if i == 0 || l.Bandwidth < weakest.Bandwidth {
			weakest = l
		}
	}
	return weakest
}

func (o *Oracle) ring(set nvtopo.Mask) ring {
	if known, ok := o.rings[set]; ok {
		return known
	}
	var best ring
	switch set.Len() {
	case 0:
	case 1:
		best = ring{order: set.Positions()}
	default:
		best.kBps = -1
		o.extend([]int{set.First()}, set&^nvtopo.MaskOf(set.First()), math.MaxInt64, o.ringBound(set), &best)
	}
	o.rings[set] = best
	return best
}

// extend tries every order of the remaining GPUs after path, whose weakest link so far is weakest. A path
// already no better than the best ring cannot become better, and no ring beats bound.
func (o *Oracle) extend(path []int, left nvtopo.Mask, weakest, bound int64, best *ring) {
	if weakest <= best.kBps || best.kBps == bound {
		return
	}
	last := path[len(path)-1]
	if left == 0 {
		if closed := min(weakest, o.g.Link(last, path[0]).Bandwidth); closed > best.kBps {
			*best = ring{order: append([]int(nil), path...), kBps: closed}
		}
		return
	}
	for next := range left.All() {
		o.extend(append(path, next), left&^nvtopo.MaskOf(next), min(weakest, o.g.Link(last, next).Bandwidth), bound, best)
	}
}

// ringBound returns a bandwidth that no ring can exceed: every GPU of a ring of three or more uses two of
// its links, so the second-best link of each is a limit.
func (o *Oracle) ringBound(set nvtopo.Mask) int64 {
	bound := int64(math.MaxInt64)
	for i := range set.All() {
		var first, second int64
		for j := range set.All() {
			switch bw := o.g.Link(i, j).Bandwidth; {
			case i == j:
			case bw > first:
				first, second = bw, first
			case bw > second:
				second = bw
			}
		}
		if set.Len() == 2 {
			second = first
		}
		bound = min(bound, second)
	}
	return bound
}
