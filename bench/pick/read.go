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

// reader is the least that a table of answers can cost: one call, one read at
// the same place of a slice of the same size and type as an answer table's.
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

// ratios are those of the repeats; both sides of one were measured in turn.
func (r *readRatio) ratios() report.Sample {
	out := make(report.Sample, len(r.Ours))
	for i := range out {
		out[i] = r.Ours[i] / r.Empty[i]
	}
	return out
}

// sink keeps answers alive, so that no measured call can be left out.
type sink struct{ sum nvtopo.Mask }

func compareReads(b bed, seed uint64, repeats, rounds int, s *sink) []readRatio {
	steps, r, t := walk(b.graph.Len(), seed), newReader(b.graph.Len()), b.tables
	free := readRatio{Machine: b.name, Mode: "independent"}
	chain := readRatio{Machine: b.name, Mode: "dependent"}
	perStep := func(start time.Time) float64 {
		return float64(time.Since(start).Nanoseconds()) / float64(rounds*len(steps))
	}
	for range repeats {
		start := time.Now()
		for range rounds {
			for i := range steps {
				q := &steps[i]
				set, _ := t.Pick(q.free, q.free, q.k, nvtopo.Constraint{})
				s.sum += set
			}
		}
		free.Ours = append(free.Ours, perStep(start))

		start = time.Now()
		for range rounds {
			for i := range steps {
				q := &steps[i]
				s.sum += r.read(q.free, q.k)
			}
		}
		free.Empty = append(free.Empty, perStep(start))

		// The answer is shifted out of the next address: the processor does not
		// know that it adds nothing, and has to wait for it.
		start = time.Now()
		var last nvtopo.Mask
		for range rounds {
			for i := range steps {
				q := &steps[i+int(last>>63)]
				last, _ = t.Pick(q.free, q.free, q.k, nvtopo.Constraint{})
			}
		}
		s.sum += last
		chain.Ours = append(chain.Ours, perStep(start))

		start = time.Now()
		for range rounds {
			for i := range steps {
				q := &steps[i+int(last>>63)]
				last = r.read(q.free, q.k)
			}
		}
		s.sum += last
		chain.Empty = append(chain.Empty, perStep(start))
	}
	return []readRatio{free, chain}
}
