// SPDX-License-Identifier: Apache-2.0

package nvtopo

import (
	"context"
	"fmt"
	"math"
	"slices"
)

// Tables answers the objective for one graph. Everything expensive is shared with the other graphs of the
// class (see Registry). It is safe for concurrent use, and answers do not depend on how far the tables
// are built.
//
// Up to 8 GPUs an answer is one read of a table. From 9 to 16 GPUs that holds after Prepare; before it,
// and for sets restricted by allowed, an answer is an exact walk over the subsets. Above 16 it is a
// branch and bound, see docs/objective.md.
type Tables struct {
	g *Graph
	c *classTables
}

// NewTables builds the tables of a graph: complete up to 8 GPUs, without the
// answer tables from 9 to 16 (see Prepare).
func NewTables(g *Graph, w Weights) *Tables {
	return &Tables{g: g, c: newClassTables(g, w)}
}

// Graph returns the graph of these tables.
func (t *Tables) Graph() *Graph { return t.g }

// Prepare builds the remaining answer tables, about 0.2 s each for 16 GPUs:
// first the one without constraints, then those of the two strict policies.
// It returns the context's error when that ends first.
func (t *Tables) Prepare(ctx context.Context) error {
	if t.c.n > exactGPUs {
		return nil
	}
	t.c.build.Lock()
	defer t.c.build.Unlock()
	for _, p := range preparedPolicies() {
		if t.c.answer(ctx.Done(), t.c.variant(&Constraint{Policy: p})) == nil {
			return fmt.Errorf("building answer tables for %d GPUs: %w", t.c.n, ctx.Err())
		}
	}
	return nil
}

// preparedPolicies returns the policies whose answer tables are built ahead.
func preparedPolicies() []Policy {
	return []Policy{PolicyBestEffort, PolicySingleNUMANode, PolicyRestricted}
}

// Ring returns the ring bottleneck of a set in kB/s, 0 below two GPUs.
func (t *Tables) Ring(set Mask) int64 {
	set &= t.c.all
	if set&(set-1) == 0 {
		return 0
	}
	return t.c.steps[t.c.ringStep(set)]
}

// RingOrder returns the positions of a set in the order of its best ring, from the lowest member: the
// greatest bottleneck, then the greatest sum of links, then the lexicographically smallest. Above 16 GPUs
// the sum need not be the greatest.
func (t *Tables) RingOrder(set Mask) []int { return slices.Clone(t.c.ringOf(set & t.c.all)) }

// RingClass returns the class of the weakest edge of RingOrder's ring; zero below
// two GPUs.
func (t *Tables) RingClass(set Mask) Class { return t.c.ringClass(t.c.ringOf(set & t.c.all)) }

// Latency returns the greatest latency in ns among the set's links of the ring
// bottleneck's bandwidth; 0 below two GPUs.
func (t *Tables) Latency(set Mask) int64 {
	set &= t.c.all
	if set&(set-1) == 0 {
		return 0
	}
	return t.c.latencyAt(set, t.c.ringStep(set))
}

// Residual returns R of a free set, its remaining value in 10^-6 kB/s.
func (t *Tables) Residual(free Mask) int64 {
	free &= t.c.all
	if t.c.n <= exactGPUs {
		return t.c.residual[free]
	}
	return t.c.largeResidual(free)
}

// Best returns the best ring of k GPUs when all GPUs of the machine are free and healthy, without
// constraints; 0 below two GPUs or for more than the machine has.
func (t *Tables) Best(k int) int64 {
	if k < 0 || k > t.c.n {
		return 0
	}
	if t.c.n > exactGPUs {
		return t.c.bestOf(k)
	}
	return t.c.best[k].Load()
}

// MinNUMA returns the fewest NUMA nodes that k GPUs need when the machine is empty; for more GPUs than it
// has, a number above that of any set.
func (t *Tables) MinNUMA(k int) int {
	switch {
	case k <= 0:
		return 0
	case k > t.c.n:
		return math.MaxInt
	}
	return t.c.minNodes[k]
}

// NUMACount returns the number of NUMA nodes of a set; each GPU whose node is not known is on a node of
// its own.
func (t *Tables) NUMACount(set Mask) int { return t.c.numaCount(set & t.c.all) }

// Bytes returns the memory of the tables, which the graphs of one class share.
func (t *Tables) Bytes() int { return t.c.bytes() }

// ClassID identifies the shared tables of a graph class; it is comparable.
type ClassID struct{ c *classTables }

// Class returns the identity of the shared tables: equal for all graphs of one class with tables from one
// Registry.
func (t *Tables) Class() ClassID { return ClassID{t.c} }
