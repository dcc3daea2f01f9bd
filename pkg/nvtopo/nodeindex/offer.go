// SPDX-License-Identifier: Apache-2.0

package nodeindex

import "github.com/nvtopo/nvtopo/pkg/nvtopo"

// Bands of quality: the ring of the set relative to the best ring of as many GPUs on the same machine
// when empty.
const (
	BandBest         = iota // equal to the best, and always so for one GPU
	BandThreeQuarter        // at least three quarters of it
	BandHalf
	BandQuarter
	BandRest
	Bands // number of bands
)

// Demand is the request of one pod to one machine.
type Demand struct {
	GPUs       int
	Constraint nvtopo.Constraint
	// Bytes is the size of the message by which rings are compared, for each GPU; 0: DefaultBytes.
	Bytes int64
	// KnownOnly refuses machines on which the users of some GPUs are not known.
	KnownOnly bool
	// Suitable, if not nil, restricts the choice by model or memory. It must be
	// the same for all machines of one Kind.
	Suitable func(*nvtopo.Graph) nvtopo.Mask
}

// Offer is the best set of a machine for a demand, with its values.
type Offer struct {
	Set       nvtopo.Mask
	Band      int
	Ring      int64   // bottleneck of the set's ring, kB/s; 0 for one GPU
	Latency   int64   // ns of its weakest link; 0 for one GPU
	Lost      float64 // the set's cost to later demands; see lost
	FreeAfter int     // GPUs left
	GPUs      int     // of the machine, healthy and not degraded
	Together  int     // how many of these have fast links to each other; see together
	Links     int64   // kB/s: the ring of all of these
	TFLOPS    float64 // compute speed of the GPU, if the set is one
	// Preference is the pod's preference for the machine's hardware; greater is better.
	Preference int64
}

// OfferOf judges a set chosen from a machine's free GPUs. Degraded ones add nothing to the value of the
// others.
func OfferOf(t *nvtopo.Tables, healthy, free, degraded, set nvtopo.Mask) Offer {
	k := set.Len()
	o := Offer{Set: set, Ring: t.Ring(set), Latency: t.Latency(set), FreeAfter: (free &^ set).Len()}
	o.Band = band(k, o.Ring, t.Best(k))
	whole := healthy &^ degraded
	o.Lost = lost(t, whole, free&^degraded, set)
	o.GPUs, o.Together, o.Links = whole.Len(), together(t, whole), t.Ring(whole)
	if k == 1 {
		o.TFLOPS = t.Graph().TFLOPS(set.First())
	}
	return o
}

// together returns the largest number of GPUs whose best ring has at least half of the bandwidth of the
// best pair. Beyond it a machine is no better for a pod than several smaller ones: eight GPUs with NVLink
// bridges over four of them each are two groups of four.
func together(t *nvtopo.Tables, whole nvtopo.Mask) int {
	n := whole.Len()
	for n > 2 && 2*t.Best(n) < t.Best(2) {
		n--
	}
	return n
}

// lost returns the share of the machine's residual capacity that a set takes, times the value of a
// machine of that many GPUs: the cube of their number. Where all machines have as many, the shares alone
// decide; beside smaller machines a large one stays whole, even with slow links, since nothing else
// serves the pods that need it. The cube is measured (docs/decisions/0011-machines-of-different-size.md).
func lost(t *nvtopo.Tables, whole, free, set nvtopo.Mask) float64 {
	all := t.Residual(whole)
	if all == 0 {
		return 0
	}
	n := float64(whole.Len())
	return float64(max(0, t.Residual(free)-t.Residual(free&^set))) / float64(all) * n * n * n
}

// BandOf returns the band of a set.
func BandOf(t *nvtopo.Tables, set nvtopo.Mask) int {
	return band(set.Len(), t.Ring(set), t.Best(set.Len()))
}

func band(k int, ring, best int64) int {
	if k < 2 {
		return BandBest
	}
	return BandOfRing(ring, best)
}

// BandOfRing returns the band of a ring's bandwidth relative to the best of as many GPUs on the machine.
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

// Tighten returns a pod's constraint with the policy that the machine's kubelet enforces itself.
func Tighten(c nvtopo.Constraint, kubelet nvtopo.Policy) nvtopo.Constraint {
	switch {
	case kubelet == nvtopo.PolicySingleNUMANode:
		c.Policy = nvtopo.PolicySingleNUMANode
	case kubelet == nvtopo.PolicyRestricted && c.Policy != nvtopo.PolicySingleNUMANode:
		c.Policy = nvtopo.PolicyRestricted
	}
	return c
}
