// SPDX-License-Identifier: Apache-2.0

package nvtopo

import (
	"context"
	"fmt"
	"math"
	"slices"
)

// Tables answers the objective for one graph. Everything expensive is shared
// with the other graphs of the class (see Registry). It is safe for concurrent
// use, and answers do not depend on how far the tables are built.
//
// Up to 8 GPUs an answer is one read of a table. From 9 to 16 it is so after
// Prepare, before that and for sets restricted by allowed it is an exact walk
// over the subsets. Above 16 it is a branch and bound, see docs/objective.md.
type Tables struct {
	g *Graph
	c *classTables
}

// Choice is a set of GPUs and what it is worth.
type Choice struct {
	Set       Mask
	Ring      []int // positions in ring order
	Bandwidth int64 // kB/s of the weakest link of the ring; 0 for one GPU
	Class     Class // class of that link; zero for one GPU
	Latency   int64 // ns of that link; 0 for one GPU
	NUMANodes []int // ascending ids; UnknownNUMA where a node is not known
	Residual  int64 // of what stays free
	PairSum   int64 // kB/s, over all pairs
	PCIeSum   int64 // of the PCIe ranks of all pairs
}

// NewTables builds the tables of a graph: complete up to 8 GPUs, without the
// answer tables from 9 to 16 (see Prepare).
func NewTables(g *Graph, w Weights) *Tables {
	return &Tables{g: g, c: newClassTables(g, w)}
}

// Graph is the graph whose questions these tables answer.
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

// preparedPolicies are those whose answer tables are built ahead.
func preparedPolicies() []Policy {
	return []Policy{PolicyBestEffort, PolicySingleNUMANode, PolicyRestricted}
}

// Pick returns the best k GPUs of free and allowed under the constraint. free
// is what nobody uses, and the residual counts all of it; allowed restricts the
// choice only. No GPUs are asked for with k = 0: the empty set.
func (t *Tables) Pick(free, allowed Mask, k int, con Constraint) (Mask, bool) {
	c := t.c
	free &= c.all
	// The scheduler asks this per node and pod, mostly without constraints: that
	// way makes no call, so nothing is spilled for one.
	if free&^allowed == 0 && uint(k-1) < uint(c.n) && len(c.answers) > 0 && con.unconstrained() {
		if a := c.answers[0].Load(); a != nil {
			s := Mask(a.sets[k<<(c.n&31)|int(free)])
			return s, s != 0
		}
	}
	return t.pick(free, free&allowed, k, &con)
}

// unconstrained reports whether the constraint is that of variant 0, without a
// bandwidth. Field by field: comparing with an empty Class reads memory.
func (con *Constraint) unconstrained() bool {
	return con.Policy <= PolicyNone && !con.AllowMixedModels && con.MinBandwidth <= 0 &&
		con.MinLink.Kind == 0 && con.MinLink.Lanes == 0 && con.MinLink.PCIe == 0
}

// pick is Pick with constraints or without a table.
func (t *Tables) pick(free, avail Mask, k int, con *Constraint) (Mask, bool) {
	c := t.c
	if k <= 0 || k > avail.Len() {
		return 0, k == 0
	}
	variant := c.variant(con)
	var s Mask
	if avail == free && c.n <= exactGPUs {
		if a := c.answers[variant].Load(); a != nil {
			return t.fastEnough(Mask(a.sets[k<<c.n|int(free)]), k, con)
		}
	}
	switch {
	case c.n > exactGPUs:
		s = c.search(free, avail, k, variant)
	case avail == free && c.n <= eagerGPUs:
		s = Mask(c.answer(nil, variant).sets[k<<c.n|int(free)])
	default:
		s = c.enumerate(free, avail, k, c.filter(variant), nil)
	}
	return t.fastEnough(s, k, con)
}

// fastEnough is s unless it is empty or its ring is slower than asked.
func (t *Tables) fastEnough(s Mask, k int, con *Constraint) (Mask, bool) {
	if con.MinBandwidth > 0 && k > 1 && t.Ring(s) < con.MinBandwidth {
		return 0, false
	}
	return s, s != 0
}

// Choose is Pick with everything worth knowing about the set, or the reason
// why there is none.
func (t *Tables) Choose(free, allowed Mask, k int, con Constraint) (Choice, Shortfall) {
	s, ok := t.Pick(free, allowed, k, con)
	if !ok {
		return Choice{}, t.Shortfall(free, allowed, k, con)
	}
	pcie, pair := t.c.sums(s)
	ch := Choice{
		Set: s, Ring: t.RingOrder(s), Bandwidth: t.Ring(s), Latency: t.Latency(s), NUMANodes: t.g.NUMAOf(s),
		Residual: t.Residual(free &^ s), PairSum: pair, PCIeSum: pcie,
	}
	ch.Class = t.c.ringClass(ch.Ring)
	return ch, ShortNone
}

// Shortfall tells why Pick finds nothing; ShortNone when it finds something.
func (t *Tables) Shortfall(free, allowed Mask, k int, con Constraint) Shortfall {
	if k < 0 || (free&allowed&t.c.all).Len() < k {
		return ShortFree
	}
	relaxed := Constraint{Policy: PolicyNone, AllowMixedModels: con.AllowMixedModels}
	if _, ok := t.Pick(free, allowed, k, relaxed); !ok {
		return ShortModel
	}
	relaxed.Policy = con.Policy
	if _, ok := t.Pick(free, allowed, k, relaxed); !ok {
		return ShortNUMA
	}
	relaxed.MinLink = con.MinLink
	if _, ok := t.Pick(free, allowed, k, relaxed); !ok {
		return ShortLink
	}
	if _, ok := t.Pick(free, allowed, k, con); !ok {
		return ShortBandwidth
	}
	return ShortNone
}

// Ring is the ring bottleneck of a set in kB/s, 0 below two GPUs.
func (t *Tables) Ring(set Mask) int64 {
	set &= t.c.all
	if set&(set-1) == 0 {
		return 0
	}
	return t.c.steps[t.c.ringStep(set)]
}

// RingOrder returns the positions of a set in the order of its best ring: the
// lexicographically smallest of those with the greatest bottleneck, from the
// lowest member.
func (t *Tables) RingOrder(set Mask) []int { return slices.Clone(t.c.ringOf(set & t.c.all)) }

// RingClass is the class of the weakest edge of RingOrder's ring; zero below
// two GPUs.
func (t *Tables) RingClass(set Mask) Class { return t.c.ringClass(t.c.ringOf(set & t.c.all)) }

// Latency is the greatest latency in ns among the set's links of the ring
// bottleneck's bandwidth; 0 below two GPUs.
func (t *Tables) Latency(set Mask) int64 {
	set &= t.c.all
	if set&(set-1) == 0 {
		return 0
	}
	return t.c.latencyAt(set, t.c.ringStep(set))
}

// Residual is R of a free set: what it is still worth, in 10^-6 kB/s.
func (t *Tables) Residual(free Mask) int64 {
	free &= t.c.all
	if t.c.n <= exactGPUs {
		return t.c.residual[free]
	}
	return t.c.largeResidual(free)
}

// Best is the best ring of k GPUs when all GPUs of the machine are free and
// healthy, without constraints; 0 below two GPUs or for more than there are.
func (t *Tables) Best(k int) int64 {
	if k < 0 || k > t.c.n {
		return 0
	}
	if t.c.n > exactGPUs {
		return t.c.bestOf(k)
	}
	return t.c.best[k].Load()
}

// MinNUMA is the fewest NUMA nodes k GPUs need when the machine is empty, and
// more than any set has when there are not that many.
func (t *Tables) MinNUMA(k int) int {
	switch {
	case k <= 0:
		return 0
	case k > t.c.n:
		return math.MaxInt
	}
	return t.c.minNodes[k]
}

// NUMACount is the number of NUMA nodes of a set; each GPU whose node is not
// known is on a node of its own.
func (t *Tables) NUMACount(set Mask) int { return t.c.numaCount(set & t.c.all) }

// Bytes is the memory of the tables, which the graphs of one class share.
func (t *Tables) Bytes() int { return t.c.bytes() }

// ClassID identifies the shared tables of a graph class; it is comparable.
type ClassID struct{ c *classTables }

// Class tells which tables these are: equal for all graphs of one class that
// one Registry gave tables to.
func (t *Tables) Class() ClassID { return ClassID{t.c} }
