// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"cmp"
	"math/big"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// Oracle answers for one graph and caches its results for each set of GPUs. It is not safe for concurrent
// use.
type Oracle struct {
	g       *nvtopo.Graph
	weights nvtopo.Weights

	rings   map[nvtopo.Mask]ring     // set -> its best ring
	numa    map[nvtopo.Mask]numaSpan // set -> the NUMA nodes it spans
	need    map[int]int              // number of GPUs -> fewest NUMA nodes any such set spans
	values  map[nvtopo.Mask]*big.Int // group -> its value in the residual
	packing map[packed]*big.Int      // free set, group size -> V_g
	totals  map[nvtopo.Mask]*big.Int // free set -> R
}

// New returns an oracle for g with the published weights.
func New(g *nvtopo.Graph) *Oracle { return NewWeighted(g, nvtopo.DefaultWeights()) }

// NewWeighted returns an oracle for g with weights of its own.
func NewWeighted(g *nvtopo.Graph, w nvtopo.Weights) *Oracle {
	return &Oracle{
		g: g, weights: w,
		rings: map[nvtopo.Mask]ring{}, numa: map[nvtopo.Mask]numaSpan{}, need: map[int]int{},
		values: map[nvtopo.Mask]*big.Int{}, packing: map[packed]*big.Int{}, totals: map[nvtopo.Mask]*big.Int{},
	}
}

// Best returns the best k of the GPUs that are both free and allowed, or false
// when no set satisfies the constraint.
func Best(g *nvtopo.Graph, free, allowed nvtopo.Mask, k int, c nvtopo.Constraint) (nvtopo.Mask, bool) {
	return New(g).Best(free, allowed, k, c)
}

// Best returns the best k of the GPUs that are both free and allowed, or false when no set satisfies the
// constraint. The residual capacity is that of all GPUs that stay free, allowed or not.
func (o *Oracle) Best(free, allowed nvtopo.Mask, k int, c nvtopo.Constraint) (nvtopo.Mask, bool) {
	var best nvtopo.Mask
	found := false
	if k < 1 {
		return 0, false
	}
	eachSubset(free&allowed, k, func(s nvtopo.Mask) {
		if o.Permits(s, c) && (!found || o.Compare(free, s, best) < 0) {
			best, found = s, true
		}
	})
	return best, found
}

// Permits reports whether a set satisfies the hard constraints (step 1).
func (o *Oracle) Permits(s nvtopo.Mask, c nvtopo.Constraint) bool {
	if !c.AllowMixedModels {
		for i := range s.All() {
			if o.g.GPUs[i].Model != o.g.GPUs[s.First()].Model {
				return false
			}
		}
	}
	switch c.Policy {
	case nvtopo.PolicySingleNUMANode:
		if o.span(s).nodes > 1 {
			return false
		}
	case nvtopo.PolicyRestricted:
		if o.span(s).nodes > o.fewestNodes(s.Len()) {
			return false
		}
	case nvtopo.PolicyNone, nvtopo.PolicyBestEffort:
	}
	for i := range s.All() {
		for j := range s.All() {
			if i < j && !o.g.Link(i, j).Class.AtLeast(c.MinLink) {
				return false
			}
		}
	}
	return s.Len() < 2 || o.ring(s).kBps >= c.MinBandwidth
}

// Compare orders two sets of equal size by steps 2 to 7 of the objective, where free is the free set
// before either is taken: negative when a is better, positive when b is, zero only when they are the same
// set.
func Compare(g *nvtopo.Graph, free, a, b nvtopo.Mask) int { return New(g).Compare(free, a, b) }

// Compare orders two sets of equal size by steps 2 to 7 of the objective, where free is the free set
// before either is taken: negative when a is better, positive when b is, zero only when they are the same
// set.
func (o *Oracle) Compare(free, a, b nvtopo.Mask) int {
	if a == b {
		return 0
	}
	// 2. Ring bottleneck, greater is better.
	if d := cmp.Compare(o.ring(b).kBps, o.ring(a).kBps); d != 0 {
		return d
	}
	// 3. Locality: fewer NUMA nodes, then smaller NUMA distance.
	sa, sb := o.span(a), o.span(b)
	if d := cmp.Or(cmp.Compare(sa.nodes, sb.nodes), cmp.Compare(sa.distance, sb.distance)); d != 0 {
		return d
	}
	// 4. Residual capacity of the GPUs that stay free, greater is better.
	if d := o.residual(free &^ b).Cmp(o.residual(free &^ a)); d != 0 {
		return d
	}
	// 5. PCIe distance, smaller is better. 6. Pair sum, greater is better.
	if d := cmp.Or(cmp.Compare(o.pcieRanks(a), o.pcieRanks(b)), cmp.Compare(o.pairSum(b), o.pairSum(a))); d != 0 {
		return d
	}
	// 7. The lexicographically smallest index set.
	if onlyA, onlyB := a&^b, b&^a; onlyA.First() < onlyB.First() {
		return -1
	}
	return 1
}

// pcieRanks returns the sum of the PCIe ranks of all pairs of a set.
func (o *Oracle) pcieRanks(s nvtopo.Mask) int64 {
	var sum int64
	for i := range s.All() {
		for j := range s.All() {
			if i < j {
				sum += o.g.Link(i, j).PCIe.Rank()
			}
		}
	}
	return sum
}

// pairSum returns the sum of the bandwidths of all pairs of a set in kB/s.
func (o *Oracle) pairSum(s nvtopo.Mask) int64 {
	var sum int64
	for i := range s.All() {
		for j := range s.All() {
			if i < j {
				sum += o.g.Link(i, j).Bandwidth
			}
		}
	}
	return sum
}

// eachSubset calls visit with every subset of s that has k members.
func eachSubset(s nvtopo.Mask, k int, visit func(nvtopo.Mask)) {
	switch {
	case k == 0:
		visit(0)
	case s.Len() >= k:
		first := nvtopo.MaskOf(s.First())
		eachSubset(s&^first, k-1, func(rest nvtopo.Mask) { visit(first | rest) })
		eachSubset(s&^first, k, visit)
	}
}
