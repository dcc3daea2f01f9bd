// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// question is one free set and one number of GPUs.
type question struct {
	kind string // origin of the free set
	free nvtopo.Mask
	k    int
}

// hasChoice reports whether pickers can differ in the ring: two GPUs or more,
// and not all free ones.
func (q question) hasChoice() bool { return q.k >= 2 && q.k < q.free.Len() }

// questions returns every k for the full machine, for random half-free ones and
// for the two kinds of broken machine.
func questions(g *nvtopo.Graph, seed uint64, random int) []question {
	var out []question
	add := func(kind string, free nvtopo.Mask) {
		for k := 1; k <= free.Len(); k++ {
			out = append(out, question{kind, free, k})
		}
	}
	add("full", g.Healthy())
	rng := rand.New(rand.NewPCG(seed, uint64(g.Len())))
	for i := range random {
		var free nvtopo.Mask
		for free.Len() < 2 {
			free = nvtopo.Mask(rng.Uint64()) & g.Healthy()
		}
		add(fmt.Sprintf("random %d", i+1), free)
	}
	single, mostly := broken(g)
	add("one GPU left of each pair", single)
	add("one pair whole, one GPU left of each other", mostly)
	return out
}

// broken returns free sets that leave little to choose: one GPU of every pair
// of closest neighbours, and the same with one pair whole, the last one, so
// that a picker of the first GPUs misses it.
func broken(g *nvtopo.Graph) (single, mostly nvtopo.Mask) {
	left := g.Healthy()
	var last nvtopo.Mask
	for left != 0 {
		i := left.First()
		left &^= nvtopo.MaskOf(i)
		single |= nvtopo.MaskOf(i)
		if left == 0 {
			break
		}
		mate := slices.MaxFunc(left.Positions(), func(a, b int) int { return closer(g, i, a, b) })
		left &^= nvtopo.MaskOf(mate)
		last = nvtopo.MaskOf(mate)
	}
	return single, single | last
}

// closer is positive when a is nearer to i than b is; of equals the lower is.
func closer(g *nvtopo.Graph, i, a, b int) int {
	x, y := g.Link(i, a), g.Link(i, b)
	switch {
	case x.Bandwidth != y.Bandwidth:
		return sign(x.Bandwidth > y.Bandwidth)
	case x.PCIe != y.PCIe:
		return sign(x.PCIe < y.PCIe)
	}
	return sign(a < b)
}

func sign(positive bool) int {
	if positive {
		return 1
	}
	return -1
}
