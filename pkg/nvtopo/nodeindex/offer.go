// SPDX-License-Identifier: Apache-2.0

package nodeindex

import (
	"math"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// Bands of quality: the ring chosen relative to the best ring of as many GPUs on
// the same machine when empty. The smaller band wins whatever the score.
const (
	BandBest         = iota // equal to the best, and always so for one GPU
	BandThreeQuarter        // at least three quarters of it
	BandHalf
	BandQuarter
	BandRest
	Bands // count
)

// Demand is what one pod asks of one machine.
type Demand struct {
	GPUs       int
	Constraint nvtopo.Constraint
	// KnownOnly refuses machines on which some GPUs are used by nobody knows whom.
	KnownOnly bool
	// Suitable, if not nil, restricts the choice by model or memory. It must be
	// the same for all machines of one Kind.
	Suitable func(*nvtopo.Graph) nvtopo.Mask
}

// Offer is the best a machine has for a demand.
type Offer struct {
	Set       nvtopo.Mask
	Band      int
	Ring      int64   // bottleneck of the set's ring, kB/s; 0 for one GPU
	Latency   int64   // ns of its weakest link; 0 for one GPU
	Lost      float64 // what the set costs those who come later; see lost
	FreeAfter int     // GPUs left
}

// OfferOf judges a set chosen from a machine's free GPUs. Degraded ones add nothing
// to what the others are worth.
func OfferOf(t *nvtopo.Tables, healthy, free, degraded, set nvtopo.Mask) Offer {
	k := set.Len()
	o := Offer{Set: set, Ring: t.Ring(set), Latency: t.Latency(set), FreeAfter: (free &^ set).Len()}
	o.Band = band(k, o.Ring, t.Best(k))
	o.Lost = lost(t, healthy&^degraded, free&^degraded, set)
	return o
}

// lost is the share of the machine's residual capacity that a set takes with it,
// times what a machine of that many GPUs is worth: the cube of their number. Where
// they all have as many, the shares alone decide; beside smaller machines a large one
// stays whole, however slow its links are, since nothing else serves the pods that
// need it. The cube is measured (docs/decisions/0011-machines-of-different-size.md).
func lost(t *nvtopo.Tables, whole, free, set nvtopo.Mask) float64 {
	all := t.Residual(whole)
	if all == 0 {
		return 0
	}
	n := float64(whole.Len())
	return float64(max(0, t.Residual(free)-t.Residual(free&^set))) / float64(all) * n * n * n
}

// BandOf is the band of a set.
func BandOf(t *nvtopo.Tables, set nvtopo.Mask) int {
	return band(set.Len(), t.Ring(set), t.Best(set.Len()))
}

func band(k int, ring, best int64) int {
	if k < 2 {
		return BandBest
	}
	return BandOfRing(ring, best)
}

// BandOfRing is the band of a ring's bandwidth against the best of as many GPUs there.
func BandOfRing(ring, best int64) int {
	switch {
	case ring >= best:
		return BandBest
	case 4*ring >= 3*best:
		return BandThreeQuarter
	case 2*ring >= best:
		return BandHalf
	case 4*ring >= best:
		return BandQuarter
	}
	return BandRest
}

// Tighten returns a pod's constraint with the policy that the machine's own
// kubelet enforces on top.
func Tighten(c nvtopo.Constraint, kubelet nvtopo.Policy) nvtopo.Constraint {
	switch {
	case kubelet == nvtopo.PolicySingleNUMANode:
		c.Policy = nvtopo.PolicySingleNUMANode
	case kubelet == nvtopo.PolicyRestricted && c.Policy != nvtopo.PolicySingleNUMANode:
		c.Policy = nvtopo.PolicyRestricted
	}
	return c
}

// Weights are the shares of the three terms of the score, each at least 0 and not
// all 0; they count in relation to their sum.
type Weights struct{ Bandwidth, Latency, Fragmentation float64 }

// DefaultWeights returns the published weights.
func DefaultWeights() Weights { return Weights{Bandwidth: 0.4, Latency: 0.3, Fragmentation: 0.3} }

// Best is what the machines that are compared are rated by: the best ring and
// latency among them, and the greatest loss.
type Best struct {
	Ring    int64   // kB/s
	Latency int64   // ns
	Lost    float64 // as in Offer
}

// NoBest returns a Best that any offer improves.
func NoBest() Best { return Best{Latency: math.MaxInt64} }

// Add takes an offer into the comparison.
func (b *Best) Add(o *Offer) {
	b.Ring = max(b.Ring, o.Ring)
	b.Latency = min(b.Latency, o.Latency)
	b.Lost = max(b.Lost, o.Lost)
}

// Raw scores carry the weighted terms in steps of tightest and, below that, how
// tight the fit is, so that equal terms go to the tightest fit.
const (
	tightest = 100
	// Point is one point of 100 in a raw score.
	Point = 1_000 * tightest
)

// Terms are bandwidth, latency and what is kept of an offer, each from 0 to 1, where 1 is as
// good as the best that is compared.
func (b *Best) Terms(o *Offer) (bandwidth, latency, kept float64) {
	bandwidth, latency, kept = 1, 1, 1 // one GPU has no ring: nothing to lose
	if o.Ring > 0 && b.Ring > 0 {
		bandwidth = float64(o.Ring) / float64(b.Ring)
	}
	if o.Latency > 0 {
		latency = float64(b.Latency) / float64(o.Latency)
	}
	if b.Lost > 0 {
		kept = 1 - min(1, o.Lost/b.Lost)
	}
	return bandwidth, latency, kept
}

// Raw returns the score of an offer among offers of the same band, from 0 to
// 100 points and a bit: the tie-break. Greater is better.
func (w *Weights) Raw(o *Offer, best *Best) int64 {
	bandwidth, latency, kept := best.Terms(o)
	terms := (w.Bandwidth*bandwidth + w.Latency*latency + w.Fragmentation*kept) / (w.Bandwidth + w.Latency + w.Fragmentation)
	steps := int64(math.Round(100 * Point / tightest * terms))
	return steps*tightest + int64(nvtopo.MaxGPUs-min(o.FreeAfter, nvtopo.MaxGPUs))
}
