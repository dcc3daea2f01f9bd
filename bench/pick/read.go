// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math/rand/v2"
	"time"

	"github.com/nvtopo/nvtopo/bench/internal/report"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// tableGPUs is the largest machine that has answer tables.
const tableGPUs = 16

// reader is the cheapest possible table of answers: one call, one read at the
// same place of a slice of the same size and type as an answer table's.
type reader struct {
	n    int
	sets []uint16
}

func newReader(n int) *reader {
	r := &reader{n: n, sets: make([]uint16, (n+1)<<n)}
	for i := range r.sets {
		r.sets[i] = uint16(i)
	}
	return r
}

//go:noinline
func (r *reader) read(free nvtopo.Mask, k int) nvtopo.Mask {
	return nvtopo.Mask(r.sets[k<<(r.n&31)|int(free)])
}

// query is one step of the walk that both sides of the comparison take.
type query struct {
	free nvtopo.Mask
	k    int
}

// walkSteps is the length of the walk: 64 KiB of queries, which stay in the L2
// cache, over tables that fit the L1 (8 GPUs) or exceed the L2 (16).
const walkSteps = 1 << 12

func walk(n int, seed uint64) []query {
	rng := rand.New(rand.NewPCG(seed, uint64(n)))
	out := make([]query, walkSteps)
	for i := range out {
		free := nvtopo.Mask(rng.Uint64()) & nvtopo.FullMask(n)
		if free == 0 {
			free = 1
		}
		out[i] = query{free, 1 + rng.IntN(free.Len())}
	}
	return out
}

// readRatio compares ours with the empty read on one machine.
type readRatio struct {
	Machine string `json:"machine"`
	// Mode is "independent" where the processor may overlap the picks, and
	// "dependent" where each pick needs the answer of the one before.
	Mode  string        `json:"mode"`
	Ours  report.Sample `json:"oursNs"`
	Empty report.Sample `json:"emptyNs"`
}

// ratios returns the ratios of the repeats, whose two sides were measured in
// turn.
func (r *readRatio) ratios() report.Sample {
	out := make(report.Sample, len(r.Ours))
	for i := range out {
		out[i] = r.Ours[i] / r.Empty[i]
	}
	return out
}

// sink keeps answers alive, so that no measured call can be left out.
type sink struct{ sum nvtopo.Mask }

// compareReads takes the four walks in turn, tens of microseconds each, and
// keeps of each repeat the median of its rounds: interruptions hit few of such
// short walks, and all four alike.
func compareReads(b bed, seed uint64, repeats, rounds int, s *sink) []readRatio {
	steps, r, t := walk(b.graph.Len(), seed), newReader(b.graph.Len()), b.tables
	walks := [...]func() nvtopo.Mask{
		func() nvtopo.Mask { return walkOurs(t, steps) },
		func() nvtopo.Mask { return walkEmpty(r, steps) },
		func() nvtopo.Mask { return chainOurs(t, steps) },
		func() nvtopo.Mask { return chainEmpty(r, steps) },
	}
	var medians [len(walks)]report.Sample
	for range repeats {
		var ns [len(walks)]report.Sample
		for range rounds {
			for i, walk := range walks {
				start := time.Now()
				s.sum += walk()
				ns[i] = append(ns[i], float64(time.Since(start).Nanoseconds())/float64(len(steps)))
			}
		}
		for i := range walks {
			medians[i] = append(medians[i], ns[i].Median())
		}
	}
	return []readRatio{
		{Machine: b.name, Mode: "independent", Ours: medians[0], Empty: medians[1]},
		{Machine: b.name, Mode: "dependent", Ours: medians[2], Empty: medians[3]},
	}
}

// walkOurs and walkEmpty differ in the call alone.
func walkOurs(t *nvtopo.Tables, steps []query) (sum nvtopo.Mask) {
	for i := range steps {
		set, _ := t.Pick(steps[i].free, steps[i].free, steps[i].k, nvtopo.Constraint{})
		sum += set
	}
	return sum
}

func walkEmpty(r *reader, steps []query) (sum nvtopo.Mask) {
	for i := range steps {
		sum += r.read(steps[i].free, steps[i].k)
	}
	return sum
}

// chainOurs and chainEmpty add the answer's highest bit to the next free set:
// it is never set, but the processor has to wait for it.
func chainOurs(t *nvtopo.Tables, steps []query) (last nvtopo.Mask) {
	for i := range steps {
		free := steps[i].free + last>>63
		last, _ = t.Pick(free, free, steps[i].k, nvtopo.Constraint{})
	}
	return last
}

func chainEmpty(r *reader, steps []query) (last nvtopo.Mask) {
	for i := range steps {
		last = r.read(steps[i].free+last>>63, steps[i].k)
	}
	return last
}
