// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/baseline"
)

// The pickers' names in the tables.
const (
	oursTable   = "ours, table"
	oursCold    = "ours, no table"
	oursSearch  = "ours, branch and bound"
	oursKnown   = "ours, remembered"
	plain       = "plain enumeration"
	hami        = "HAMi's rule"
	bestEffort  = "NVIDIA best-effort"
	prim        = "Prim from the closest pair"
	greedy      = "greedy nearest neighbour"
	random      = "random"
	emptyRead   = "an empty table read"
	randomDraws = 16 // sets drawn per question for the random picker's quality
)

var errNone = errors.New("no set found")

// picker is one way to choose on one machine.
type picker struct {
	name string
	pick func(free nvtopo.Mask, k int) (nvtopo.Mask, error)
	// draws are further pickers of the same kind whose quality is measured as
	// well.
	draws []func(free nvtopo.Mask, k int) (nvtopo.Mask, error)
	// steps returns the number of steps of a pick, where that can be
	// astronomical.
	steps func(free nvtopo.Mask, k int) float64
	// quality reports whether the picks are choices at all.
	quality bool
}

// pickers returns all ways to choose on a machine, ours first.
func pickers(b bed, seed uint64) []picker {
	t, g := b.tables, b.graph
	none := nvtopo.Constraint{}
	known := func(free nvtopo.Mask, k int) (nvtopo.Mask, error) { return found(t.Pick(free, free, k, none)) }
	// Without a condition PickWhere is Pick without the cached answers.
	searched := func(free nvtopo.Mask, k int) (nvtopo.Mask, error) {
		return found(t.PickWhere(free, free, k, none, nil))
	}
	out := []picker{{name: oursSearch, pick: searched, quality: true}, {name: oursKnown, pick: known, quality: true}}
	if g.Len() <= tableGPUs {
		read := newReader(g.Len())
		out = []picker{
			{name: oursTable, pick: known, quality: true},
			{name: oursCold, pick: searched, quality: true},
			{name: emptyRead, pick: func(free nvtopo.Mask, k int) (nvtopo.Mask, error) { return found(read.read(free, k), true) }},
		}
	}
	e, a := newEnumerator(g), newAllocator(g)
	out = append(out,
		picker{name: plain, quality: true, pick: func(free nvtopo.Mask, k int) (nvtopo.Mask, error) {
			set, _, ok := e.best(free, k)
			return found(set, ok)
		}},
		picker{name: hami, quality: true, pick: rule(g, baseline.PairScore())},
		picker{
			name: bestEffort, quality: true, pick: a.pick,
			steps: func(free nvtopo.Mask, k int) float64 { return allocatorSteps(free.Len(), k) },
		},
		picker{name: prim, quality: true, pick: rule(g, baseline.ClosestPair())},
		picker{name: greedy, quality: true, pick: rule(g, baseline.NearestNeighbour())},
	)
	r := picker{name: random, quality: true, pick: rule(g, baseline.Random(seed))}
	for i := range uint64(randomDraws - 1) {
		r.draws = append(r.draws, rule(g, baseline.Random(seed+i+1)))
	}
	return append(out, r)
}

func rule(g *nvtopo.Graph, p baseline.Picker) func(nvtopo.Mask, int) (nvtopo.Mask, error) {
	return func(free nvtopo.Mask, k int) (nvtopo.Mask, error) { return found(p.Pick(g, free, k)) }
}

func found(set nvtopo.Mask, ok bool) (nvtopo.Mask, error) {
	if !ok {
		return 0, errNone
	}
	return set, nil
}
