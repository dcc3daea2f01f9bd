// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"math/big"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// maxGroup is the largest group that is part of the residual capacity.
const maxGroup = 8

// Common denominators, so that all values are whole numbers: a group of at
// most 8 spans at most 8 NUMA nodes, hence nine tenths to the power of at most
// 7; 0.95 is 19/20; one PCIe rank costs 1/2000; weights are in thousandths.
const (
	nodesDenominator  = 10_000_000
	farDenominator    = 20
	rankDenominator   = 2000
	weightDenominator = 1000

	farApart = 20 // NUMA distance above which two nodes are far apart
)

// packed is the key of one packing problem.
type packed struct {
	free nvtopo.Mask
	size int
}

// Residual returns R of the free set, in kB/s.
func Residual(g *nvtopo.Graph, free nvtopo.Mask) *big.Rat { return New(g).Residual(free) }

// Residual returns R of the free set, in kB/s.
func (o *Oracle) Residual(free nvtopo.Mask) *big.Rat {
	d := big.NewInt(nodesDenominator * farDenominator * rankDenominator)
	d.Mul(d, big.NewInt(weightDenominator))
	return new(big.Rat).SetFrac(o.residual(free), d)
}

// residual returns R(F) = sum over g = 2 … 8 of w_g * g * V_g(F), times all denominators.
func (o *Oracle) residual(free nvtopo.Mask) *big.Int {
	if known, ok := o.totals[free]; ok {
		return known
	}
	sum := new(big.Int)
	for g := 2; g <= maxGroup; g++ {
		if w := o.weights.Group[g]; w > 0 {
			term := big.NewInt(w * int64(g))
			sum.Add(sum, term.Mul(term, o.pack(free, g)))
		}
	}
	o.totals[free] = sum
	return sum
}

// pack returns V_g: the greatest total value of disjoint groups of g. The first GPU either stays alone,
// or is in one group; both are tried, with every group.
func (o *Oracle) pack(free nvtopo.Mask, g int) *big.Int {
	if free.Len() < g {
		return new(big.Int)
	}
	key := packed{free, g}
	if known, ok := o.packing[key]; ok {
		return known
	}
	first := nvtopo.MaskOf(free.First())
	best, total := new(big.Int).Set(o.pack(free&^first, g)), new(big.Int)
	eachSubset(free&^first, g-1, func(others nvtopo.Mask) {
		group := first | others
		total.Add(o.value(group), o.pack(free&^group, g))
		if total.Cmp(best) > 0 {
			best.Set(total)
		}
	})
	o.packing[key] = best
	return best
}

// value returns ring(T) * 0.9^(NUMA nodes - 1) * (0.95 if two of them are more than 20 apart) * (1 -
// 0.0005 * sum of PCIe ranks), times the first three denominators.
func (o *Oracle) value(group nvtopo.Mask) *big.Int {
	if known, ok := o.values[group]; ok {
		return known
	}
	span := o.span(group)
	nodes := int64(nodesDenominator)
	for range span.nodes - 1 {
		nodes = nodes / 10 * 9
	}
	far := int64(farDenominator)
	if span.distance > farApart {
		far = 19
	}
	v := big.NewInt(o.ring(group).kBps)
	for _, factor := range []int64{nodes, far, rankDenominator - o.pcieRanks(group)} {
		v.Mul(v, big.NewInt(factor))
	}
	o.values[group] = v
	return v
}
