// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/oracle"
)

// truth is the brute force: it tries every set on the graph, never the tables.
type truth struct {
	g      *nvtopo.Graph
	oracle *oracle.Oracle
	rings  map[nvtopo.Mask]int64 // set -> its best ring in kB/s
}

func newTruth(g *nvtopo.Graph) *truth {
	return &truth{g: g, oracle: oracle.New(g), rings: map[nvtopo.Mask]int64{}}
}

// ring returns the best ring of a set in kB/s, by trying the orders of its GPUs.
func (t *truth) ring(set nvtopo.Mask) int64 {
	r, ok := t.rings[set]
	if !ok {
		_, r = t.oracle.Ring(set)
		t.rings[set] = r
	}
	return r
}

// bestRing returns the best ring of any k of free, in kB/s. Above 16 GPUs the sets
// are too many to try the orders of each; there plain enumeration, whose rings are
// those of dynamic programming, is the brute force.
func (t *truth) bestRing(free nvtopo.Mask, k int) int64 {
	e := newEnumerator(t.g)
	if t.g.Len() > tableGPUs {
		_, ring, _ := e.best(free, k)
		return ring
	}
	var best int64
	e.subsets(free, k, 0, func(s nvtopo.Mask) { best = max(best, t.ring(s)) })
	return best
}

// agrees reports whether all seven steps of the objective choose set.
func (t *truth) agrees(q question, set nvtopo.Mask) bool {
	want, ok := t.oracle.Best(q.free, q.free, q.k, nvtopo.Constraint{})
	return ok && want == set
}
