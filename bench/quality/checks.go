// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"slices"

	"github.com/nvtopo/nvtopo/internal/lab/sim"
)

// reference is the policy that waiting and fragmentation are compared with: it packs
// as tightly as ours and picks as well, but chooses the node before its GPUs.
const reference = "binpack+exact"

// Promises for the mix of traceMix at checkedLoads without a policy that kubelets
// enforce; elsewhere only that no kubelet refuses a pod. On machines of different
// size it is that pods of 8 GPUs wait no longer than with any other policy.
const (
	bestAt85        = 0.99
	bestAt95        = 0.95
	overOther       = 0.15  // on the small clusters, above the best other policy
	ofTheWay        = 0.90  // on the large ones, of the distance from it to 1
	allocationSlack = 0.005 // below the reference
	waitFactor      = 1.10  // times the reference
	strandedSlack   = 0.02  // above the reference
)

// checkedLoads returns the loads that promises are made for.
func checkedLoads() []float64 { return []float64{0.85, 0.95} }

// Check is one promise with its measured value.
type Check struct {
	Promise  string   `json:"promise"`
	Cell     Cell     `json:"cell"`
	Want     string   `json:"want"`
	Measured string   `json:"measured"`
	Value    Estimate `json:"value"` // in the unit of the engine's field, or a ratio
	Pass     bool     `json:"pass"`
	// Decided is false where the confidence interval contains both kept and missed
	// values: other seeds may have the opposite result.
	Decided bool `json:"decided"`
}

// checksOf compares a cell with the promises for such cells.
func checksOf(c *CellSummary, small int) []Check {
	ours, ref := c.policy(sim.Ours), c.policy(reference)
	if ours == nil {
		return nil
	}
	k := checker{cell: c.Cell}
	k.add("no kubelet rejections", "0", ours.Fields[fieldRejections], 1, "", func(v float64) bool { return v == 0 })
	if !c.plain(c.Nodes) || !slices.Contains(checkedLoads(), c.Load) {
		return k.checks
	}
	if c.sizes() {
		k.sizes(c, ours)
		return k.checks
	}
	k.best(c, ours)
	if other := c.policy(c.BestOther); other != nil {
		k.other(c, ours, other, small)
	}
	if ref != nil {
		k.reference(ours, ref)
	}
	return k.checks
}

type checker struct {
	cell   Cell
	checks []Check
}

// add appends a check; scale and unit are for the printed value.
func (k *checker) add(promise, want string, v Estimate, scale float64, unit string, pass func(mean float64) bool) {
	k.checks = append(k.checks, Check{
		Promise: promise, Cell: k.cell, Want: want, Measured: v.format(scale, 2) + unit, Value: v, Pass: pass(v.Mean),
		Decided: math.IsNaN(v.CI95) || pass(v.Mean-v.CI95) == pass(v.Mean+v.CI95),
	})
}

func (k *checker) best(c *CellSummary, ours *PolicySummary) {
	want := bestAt85
	if c.Load == checkedLoads()[1] {
		want = bestAt95
	}
	k.add("ours in the best class", fmt.Sprintf("≥ %g %%", 100*want), ours.Fields[fieldBest], 100, " %", func(v float64) bool { return v >= want })
}

func (k *checker) other(c *CellSummary, ours, other *PolicySummary, small int) {
	if c.Nodes <= small {
		k.add("ours less "+c.BestOther+", best class", fmt.Sprintf("≥ %g points", 100*overOther),
			other.OursLess[fieldBest], 100, " points", func(v float64) bool { return v >= overOther })
		return
	}
	way := make(Series, len(ours.Seeds[fieldBest]))
	for i, v := range ours.Seeds[fieldBest] {
		from := other.Seeds[fieldBest][i]
		way[i] = math.NaN() // nothing left to gain
		if from < 1 {
			way[i] = (v - from) / (1 - from)
		}
	}
	k.add("ours on the way from "+c.BestOther+" to 100 %", fmt.Sprintf("≥ %g %%", 100*ofTheWay),
		way.estimate(), 100, " %", func(v float64) bool { return v >= ofTheWay })
}

// sizes compares with the policy under which pods of 8 GPUs wait least.
func (k *checker) sizes(c *CellSummary, ours *PolicySummary) {
	var best *PolicySummary
	for i := range c.Policies {
		p := &c.Policies[i]
		if isPeer(p.Policy) && (best == nil || p.Fields[fieldWait8].Mean < best.Fields[fieldWait8].Mean) {
			best = p
		}
	}
	if best == nil {
		return
	}
	k.add("wait of pods of 8 GPUs by "+best.Policy+"'s", "≤ 1", relative(ours, best, fieldWait8), 1, "", func(v float64) bool { return v <= 1 })
}

// relative returns the ratio of the means: waits differ so much between traces that a
// mean of ratios would weigh the seeds with almost no waits the most.
func relative(ours, other *PolicySummary, field string) Estimate {
	base := other.Fields[field].Mean
	if base == 0 {
		if ours.Fields[field].Mean > 0 {
			return Estimate{math.Inf(1), 0}
		}
		return Estimate{1, 0}
	}
	return Estimate{1 + other.OursLess[field].Mean/base, other.OursLess[field].CI95 / base}
}

func (k *checker) reference(ours, ref *PolicySummary) {
	k.add("allocation less "+reference, fmt.Sprintf("≥ %g points", -100*allocationSlack),
		ref.OursLess[fieldAllocation], 100, " points", func(v float64) bool { return v >= -allocationSlack })
	k.add("wait of multi-GPU pods by "+reference+"'s", fmt.Sprintf("≤ %.2f", waitFactor), relative(ours, ref, fieldWaitMulti), 1, "",
		func(v float64) bool { return v <= waitFactor })
	k.add("stranded for four less "+reference, fmt.Sprintf("≤ %g points", 100*strandedSlack),
		ref.OursLess[fieldStranded], 100, " points", func(v float64) bool { return v <= strandedSlack })
}
