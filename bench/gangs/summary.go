// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"

	"github.com/nvtopo/nvtopo/bench/internal/report"
	"github.com/nvtopo/nvtopo/internal/lab/sim"
)

// PolicySummary is one policy in one cell: means over the seeds, and sums of counts.
type PolicySummary struct {
	Variant
	Gangs         int          `json:"gangs"` // of all seeds
	OneRack       float64      `json:"oneRackShare"`
	OneSpine      float64      `json:"oneSpineShare"`
	RacksOver     float64      `json:"racksOverFewest"`
	SpinesOver    float64      `json:"spinesOverFewest"`
	WaitS         float64      `json:"meanWaitSeconds"`    // of gangs
	AllWaitS      float64      `json:"meanWaitOfPodsS"`    // of all pods
	LevelRegret   float64      `json:"levelRegret"`        // in levels
	NotCarriedOut int          `json:"notCarriedOut"`      // of all seeds
	BestBand      float64      `json:"bestBandShare"`      // of the pods with several GPUs
	Allocated     float64      `json:"allocationRatio"`    // of the GPU time
	Unfinished    int          `json:"unfinished"`         // of all seeds
	AllReduceMS   float64      `json:"allReduceMS"`        // of gangs, where they are judged
	MixedModels   int          `json:"mixedModels"`        // gangs of all seeds, where they are judged
	Seeds         []sim.Result `json:"seeds"`              // each replay
	OneRackBySeed []float64    `json:"oneRackShareBySeed"` // as in Seeds, for a glance
}

// CellSummary is one cell with all its policies.
type CellSummary struct {
	Cell
	Jobs     int             `json:"jobs"`
	Policies []PolicySummary `json:"policies"`
}

// policy returns the summary of a variant; nil if the cell has none.
func (c *CellSummary) policy(v Variant) *PolicySummary {
	i := slices.IndexFunc(c.Policies, func(p PolicySummary) bool { return p.Variant == v })
	if i < 0 {
		return nil
	}
	return &c.Policies[i]
}

func summarise(t *task, o outcome) CellSummary {
	out := CellSummary{Cell: t.Cell, Jobs: t.jobs}
	for v, results := range o {
		p := PolicySummary{Variant: t.variants[v]}
		mean := func(field func(r *sim.Result) float64) float64 {
			var s report.Sample
			for _, r := range results {
				s = append(s, field(r))
			}
			return s.Mean()
		}
		for _, r := range results {
			p.Seeds = append(p.Seeds, *r)
			p.Gangs += r.Gangs.Count
			p.NotCarriedOut += r.Gangs.NotCarriedOut
			p.Unfinished += r.Unfinished
			p.OneRackBySeed = append(p.OneRackBySeed, r.Gangs.OneDomainShare[levelRack])
		}
		p.OneRack = report.Sample(p.OneRackBySeed).Mean()
		p.OneSpine = mean(func(r *sim.Result) float64 { return r.Gangs.OneDomainShare[levelSpine] })
		p.RacksOver = mean(func(r *sim.Result) float64 { return r.Gangs.DomainsOverFewest[levelRack] })
		p.SpinesOver = mean(func(r *sim.Result) float64 { return r.Gangs.DomainsOverFewest[levelSpine] })
		p.WaitS = mean(func(r *sim.Result) float64 { return r.Gangs.MeanWaitSeconds })
		p.AllWaitS = mean(func(r *sim.Result) float64 { return r.MeanWaitS })
		p.LevelRegret = mean(func(r *sim.Result) float64 { return r.Gangs.LevelRegret })
		p.BestBand = mean(func(r *sim.Result) float64 { return r.BestClassShare })
		p.Allocated = mean(func(r *sim.Result) float64 { return r.AllocationRatio })
		if t.message > 0 {
			j := p.judged()
			p.AllReduceMS, p.MixedModels = j.time.Mean(), j.mixed
		}
		out.Policies = append(out.Policies, p)
	}
	return out
}
