// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"slices"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/nodeindex"
)

// trialPrefix marks the orders of nodes that are tried beside the scheduler's.
const trialPrefix = "trial:"

// What trials go by.
const (
	trialTolerance = 0.10 // how much longer than the best an all-reduce may take to count as equal
	trialBytes     = fabric.DefaultMessage
	trialPressure  = 0.70 // share of the GPUs of large machines that keeps smaller pods off them
)

// rank is what a candidate is compared by, smaller first.
type rank [4]float64

// order is an order of nodes, each with the GPUs that the objective chooses there.
type order struct {
	name string
	// one is the rank for pods of one GPU, several that for others; nil: as "ours" does.
	one, several func(c *costs) rank
	guarded      bool
}

// costs are what the terms of orders are made of.
type costs struct {
	beyond  float64 // seconds of the all-reduce; 0 within the tolerance of the best
	share   float64 // residual lost as a share of the machine's own, times the cube of its GPUs
	loss    float64 // residual lost, times that cube
	speed   float64 // kB/s: the ring of the whole machine
	left    float64 // GPUs
	guarded float64 // 1 on large machines that larger pods need
}

func orders() []order {
	slow := func(c *costs) rank { return rank{c.guarded, c.speed, c.share, c.left} }
	share := func(c *costs) rank { return rank{c.guarded, c.beyond, c.share, c.left} }
	loss := func(c *costs) rank { return rank{c.guarded, c.beyond, c.loss, c.left} }
	return []order{
		{name: "time+loss", one: loss, several: loss},
		{name: "slow-singles", one: slow},
		{name: "time+slow-singles", one: slow, several: share},
		{name: "loss+slow-singles", one: slow, several: loss},
		{name: "guarded-singles", one: slow, guarded: true},
		{name: "guarded-loss", one: loss, several: loss, guarded: true},
		{name: "guarded", one: slow, several: loss, guarded: true},
	}
}

// Trials lists the names Config.Policy may have besides Policies: orders of nodes that were tried in
// place of the scheduler's (docs/benchmarks.md).
func Trials() []string {
	var out []string
	for _, o := range orders() {
		out = append(out, trialPrefix+o.name)
	}
	return out
}

// trial is a policy of one of the orders.
type trial struct {
	*ours
	order  order
	replay *replay
	all    []nodeindex.Candidate
}

func newTrial(c *Config, s *state) *trial {
	all := orders()
	i := slices.IndexFunc(all, func(o order) bool { return trialPrefix+o.name == c.Policy })
	if i < 0 {
		return nil
	}
	return &trial{ours: newOurs(c, s), order: all[i]}
}

func (t *trial) place(gpus int) (int, nvtopo.Mask, bool) {
	ranked := t.order.several
	if gpus == 1 {
		ranked = t.order.one
	}
	if ranked == nil {
		return t.ours.place(gpus)
	}
	d := nodeindex.Demand{GPUs: gpus, Constraint: t.state.sizes.constraints[t.state.sizes.at(gpus)]}
	t.all = t.all[:0]
	for band := nodeindex.BandBest; band < nodeindex.Bands; band++ {
		n := len(t.all)
		t.all = t.index.Candidates(&d, band, t.all)
		if len(t.all) == n {
			break
		}
		band = t.all[n].Offer.Band
	}
	if len(t.all) == 0 {
		return 0, 0, false
	}
	var chosen *nodeindex.Candidate
	var least rank
	best := t.seconds(t.all[0].Offer, gpus)
	for i := range t.all {
		best = min(best, t.seconds(t.all[i].Offer, gpus))
	}
	node := 0
	for i := range t.all {
		c := &t.all[i]
		r := ranked(t.costs(c, gpus, best))
		first := len(t.state.nodes)
		for n := range c.Bucket.Nodes() {
			first = min(first, n)
		}
		if by := slices.Compare(r[:], least[:]); chosen == nil || by < 0 || by == 0 && first < node {
			chosen, least, node = c, r, first
		}
	}
	return node, chosen.Offer.Set, true
}

// seconds of an all-reduce on what is offered.
func (t *trial) seconds(o *nodeindex.Offer, gpus int) float64 {
	if gpus < 2 {
		return 0
	}
	k := float64(gpus)
	return 2 * (k - 1) * (trialBytes/k/(1e3*float64(max(1, o.Ring))) + float64(o.Latency)/1e9)
}

func (t *trial) costs(c *nodeindex.Candidate, gpus int, best float64) *costs {
	m := &c.Bucket.Machine
	whole := m.Healthy &^ m.Degraded
	out := &costs{
		share: c.Offer.Lost, loss: c.Offer.Lost * float64(m.Tables.Residual(whole)), speed: float64(m.Tables.Ring(whole)),
		left: float64(c.Offer.FreeAfter),
	}
	if s := t.seconds(c.Offer, gpus); s > best*(1+trialTolerance) {
		out.beyond = s
	}
	if t.order.guarded && t.needed(whole.Len(), gpus) {
		out.guarded = 1
	}
	return out
}

// needed reports whether machines of so many GPUs are to be left to pods too large for any smaller
// machine: these hold or wait for most of the GPUs of such machines.
func (t *trial) needed(size, gpus int) bool {
	smaller, supply := 0, 0
	for i := range t.state.nodes {
		n := t.state.nodes[i].healthy.Len()
		if n < size {
			smaller = max(smaller, n)
		} else {
			supply += n
		}
	}
	if smaller == 0 || gpus > smaller {
		return false
	}
	demand := 0
	for i := range t.replay.running {
		if n := t.replay.running[i].part.set.Len(); n > smaller {
			demand += n
		}
	}
	for _, q := range t.replay.waiting {
		if q.gpus > smaller {
			demand += q.gpus * q.pods * len(q.jobs)
		}
	}
	return float64(demand) > trialPressure*float64(supply)
}
