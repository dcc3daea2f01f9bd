// SPDX-License-Identifier: Apache-2.0

package nodeindex

import (
	"cmp"
	"fmt"
	"math"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// DefaultBytes is the size of the all-reduce by which rings are compared, for each GPU, unless a Demand
// sets another: 1 GB.
const DefaultBytes = 1_000_000_000

// Singles is the preferred machines for pods of one GPU.
type Singles int

const (
	// SinglesSlowLinks prefers the machines with the slowest links.
	SinglesSlowLinks Singles = iota
	// SinglesLeastLost prefers the machines on which they take the least share of the residual capacity.
	SinglesLeastLost
	// SinglesSlowGPUs prefers the GPUs with the least compute speed.
	SinglesSlowGPUs
)

// ParseSingles parses the argument singleGPUs.
func ParseSingles(s string) (Singles, error) {
	switch s {
	case "SlowLinks":
		return SinglesSlowLinks, nil
	case "LeastLost":
		return SinglesLeastLost, nil
	case "SlowGPUs":
		return SinglesSlowGPUs, nil
	}
	return 0, fmt.Errorf("unknown place of single GPUs %q, want SlowLinks, LeastLost or SlowGPUs", s)
}

// Order is the parameters by which machines are compared; see docs/objective.md.
type Order struct {
	Weights Weights
	// Tolerance is the share by which an all-reduce may take longer than the shortest and be treated as
	// equal. It applies to the values by which single GPUs are compared too.
	Tolerance float64
	// Headroom is a multiple of the root of the number of large machines in use. If fewer than that many
	// remain free for pods that need them, smaller pods are kept off; 0: never.
	Headroom float64
	Singles  Singles
}

// DefaultOrder returns the published order.
func DefaultOrder() Order { return Order{Weights: DefaultWeights(), Tolerance: 0.1, Headroom: 1.5} }

// Weights are the shares of the three terms of the score, each at least 0 and not all 0; only their
// ratios matter.
type Weights struct{ Bandwidth, Latency, Fragmentation float64 }

// DefaultWeights returns the published weights.
func DefaultWeights() Weights { return Weights{Bandwidth: 0.4, Latency: 0.3, Fragmentation: 0.3} }

// Terms are the inputs of a comparison for one demand beside the offers.
type Terms struct {
	GPUs      int
	Bytes     int64
	Tolerance float64
	Singles   Singles
	Reserved  Reserved
}

// Best is the values that machines are compared with. A comparison has two passes over the offers: Lead
// finds whether all machines are reserved, the greatest preference, and the least cost; of the offers
// that are Among the best then, Add finds the best ring and latency and the greatest loss, which scores
// are relative to.
type Best struct {
	Terms
	Any        bool    // some offer is compared
	Last       bool    // all offers compared are reserved for larger pods
	Preference int64   // the greatest of the offers compared
	Least      float64 // cost
	Ring       int64   // kB/s
	Latency    int64   // ns
	Lost       float64 // as in Offer
	Left       Left    // found in the first pass, for several GPUs; see LeftFaster
}

// NoBest returns a Best that any offer improves.
func NoBest(t Terms) Best { return Best{Terms: t, Latency: math.MaxInt64} }

// cost returns the value by which offers are compared first, the smaller the better: the seconds of an
// all-reduce around the ring, or for one GPU the ring of the whole machine in kB/s, which others can use,
// or the GPU's TFLOPS.
func (t *Terms) cost(o *Offer) float64 {
	switch {
	case t.GPUs > 1:
		return o.Seconds(t.GPUs, t.Bytes)
	case t.Singles == SinglesLeastLost:
		return 0
	case t.Singles == SinglesSlowGPUs:
		return o.TFLOPS
	default:
		return float64(o.Links)
	}
}

// Lead adds the offer of a node to the first pass, of reserves, preferences and costs.
func (b *Best) Lead(o *Offer, node int) { b.lead(o, node, b.Reserved.Has(o), b.cost(o)) }

func (b *Best) lead(o *Offer, node int, last bool, cost float64) {
	if last && b.GPUs > 1 {
		b.Left.consider(&b.Reserved, node, o, cost)
	}
	preference := o.Preference
	switch {
	case !b.Any || b.Last && !last || b.Last == last && preference > b.Preference:
		b.Any, b.Last, b.Preference, b.Least = true, last, preference, cost
	case b.Last == last && b.Preference == preference:
		b.Least = min(b.Least, cost)
	}
}

// Compare orders offers as Lead prefers them: those that are not reserved for larger pods first, then the
// greater preference, then the lower cost.
func (b *Best) Compare(x, y *Offer) int {
	if last := b.Reserved.Has(x); last != b.Reserved.Has(y) {
		return map[bool]int{false: -1, true: 1}[last]
	}
	return cmp.Or(cmp.Compare(y.Preference, x.Preference), cmp.Compare(b.cost(x), b.cost(y)))
}

// Among reports whether an offer is among the best in reserve, preference and cost, between which scores
// decide.
func (b *Best) Among(o *Offer) bool {
	return b.Any && o.Preference == b.Preference && b.among(b.Reserved.Has(o), b.cost(o))
}

func (b *Best) among(last bool, cost float64) bool {
	return b.Last == last && cost <= b.Least*(1+b.Tolerance)
}

// Add adds an offer that is among the best to the second pass, of scores.
func (b *Best) Add(o *Offer) {
	b.Ring = max(b.Ring, o.Ring)
	b.Latency = min(b.Latency, o.Latency)
	b.Lost = max(b.Lost, o.Lost)
}

// Raw scores hold the weighted terms in steps of tightest and, below that, the tightness of the fit, so
// that equal terms go to the tightest fit.
const (
	tightest = 100
	// Point is one point of 100 in a raw score.
	Point = 1_000 * tightest
)

// Parts returns the bandwidth, latency and kept terms of an offer, each from 0 to 1, where 1 is as good
// as the best offer compared.
func (b *Best) Parts(o *Offer) (bandwidth, latency, kept float64) {
	bandwidth, latency, kept = 1, 1, 1 // one GPU has no ring
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

// Raw returns the score of an offer among the best, from 0 to 100 points plus the tie-break. Greater is
// better.
func (w *Weights) Raw(o *Offer, best *Best) int64 {
	bandwidth, latency, kept := best.Parts(o)
	terms := (w.Bandwidth*bandwidth + w.Latency*latency + w.Fragmentation*kept) / (w.Bandwidth + w.Latency + w.Fragmentation)
	steps := int64(math.Round(100 * Point / tightest * terms))
	return steps*tightest + int64(nvtopo.MaxGPUs-min(o.FreeAfter, nvtopo.MaxGPUs))
}
