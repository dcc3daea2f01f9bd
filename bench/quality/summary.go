// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/nvtopo/nvtopo/bench/internal/report"
	"github.com/nvtopo/nvtopo/internal/lab/sim"
)

// Names of the engine's fields that tables, checks and figures use.
const (
	fieldBest       = "bestClassShare"
	fieldRing       = "meanRingRatio"
	fieldRegret     = "meanRegretGBps"
	fieldNUMA       = "singleNUMAShare"
	fieldRejections = "kubeletRejections"
	fieldAllocation = "allocationRatio"
	fieldFGD        = "fgdFragmentation"
	fieldStranded   = "strandedForFour"
	fieldWait       = "meanWaitS"
	fieldP99        = "p99WaitS"
	fieldWaitMulti  = "meanWaitMultiS"
	fieldWait8      = "meanWait8S"
)

// Estimate is a mean over the seeds and half the width of its 95 % confidence
// interval; that is null with fewer than two seeds.
type Estimate struct {
	Mean float64
	CI95 float64
}

// Series is a value per seed, in the order of the seeds; NaN where a seed gave none.
type Series []float64

// MarshalJSON writes null for values that JSON has no number for.
func (s Series) MarshalJSON() ([]byte, error) {
	out := make([]*float64, len(s))
	for i, v := range s {
		out[i] = number(v)
	}
	return json.Marshal(out)
}

func (s Series) estimate() Estimate {
	known := make(report.Sample, 0, len(s))
	for _, v := range s {
		if !math.IsNaN(v) {
			known = append(known, v)
		}
	}
	return Estimate{known.Mean(), known.CI95()}
}

// less returns s minus other, seed by seed.
func (s Series) less(other Series) Series {
	out := make(Series, min(len(s), len(other)))
	for i := range out {
		out[i] = s[i] - other[i]
	}
	return out
}

// MarshalJSON writes null for values that JSON has no number for.
func (e Estimate) MarshalJSON() ([]byte, error) {
	out := struct {
		Mean *float64 `json:"mean"`
		CI95 *float64 `json:"ci95"`
	}{number(e.Mean), number(e.CI95)}
	return json.Marshal(out)
}

func number(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}

// PolicySummary is one policy in one cell.
type PolicySummary struct {
	Policy string `json:"policy"`
	// Fields are the numbers of the engine's result by their names in JSON; those
	// per pod size have the size behind a dot.
	Fields map[string]Estimate `json:"fields"`
	// OursLess is ours minus this policy, the mean of the differences seed by seed.
	OursLess map[string]Estimate `json:"oursLess,omitempty"`
	// Seeds are the fields seed by seed.
	Seeds map[string]Series `json:"seeds"`
}

// CellSummary is one cell with all its policies.
type CellSummary struct {
	Cell
	Policies []PolicySummary `json:"policies"`
	// BestOther is the policy, ours and its ablations apart, with the highest mean
	// share of pods in the best class.
	BestOther string `json:"bestOther"`
	// BestForeign is the best of those that do not pick with our own tables.
	BestForeign string `json:"bestForeign"`
}

func (c *CellSummary) policy(name string) *PolicySummary {
	i := slices.IndexFunc(c.Policies, func(p PolicySummary) bool { return p.Policy == name })
	if i < 0 {
		return nil
	}
	return &c.Policies[i]
}

func summarise(tasks []task, outcomes []outcome) ([]CellSummary, error) {
	out := make([]CellSummary, len(tasks))
	for i := range tasks {
		out[i].Cell = tasks[i].Cell
		for v := range tasks[i].variants {
			samples, err := samplesOf(outcomes[i][v])
			if err != nil {
				return nil, fmt.Errorf("%s, %s: %w", tasks[i].String(), tasks[i].variants[v].name, err)
			}
			p := PolicySummary{Policy: tasks[i].variants[v].name, Fields: map[string]Estimate{}, Seeds: samples}
			for field, s := range samples {
				p.Fields[field] = s.estimate()
			}
			out[i].Policies = append(out[i].Policies, p)
		}
		out[i].compare()
	}
	return out, nil
}

// compare fills in the values that depend on several policies.
func (c *CellSummary) compare() {
	ours := c.policy(sim.Ours)
	for i := range c.Policies {
		p := &c.Policies[i]
		if p.Policy == sim.Ours {
			continue
		}
		p.OursLess = map[string]Estimate{}
		for field, theirs := range p.Seeds {
			p.OursLess[field] = ours.Seeds[field].less(theirs).estimate()
		}
	}
	c.BestOther, c.BestForeign = c.best(isPeer), c.best(isForeign)
}

// best returns the policy with most pods in the best class among those for which
// pass is true, of equal ones the first; empty if there is none.
func (c *CellSummary) best(pass func(policy string) bool) string {
	best, share := "", math.Inf(-1)
	for i := range c.Policies {
		if mean := c.Policies[i].Fields[fieldBest].Mean; pass(c.Policies[i].Policy) && mean > share {
			best, share = c.Policies[i].Policy, mean
		}
	}
	return best
}

// samplesOf collects the numbers of the results by field. It uses the JSON that
// users see, so that a new field of the engine is reported without a change here.
func samplesOf(results []*sim.Result) (map[string]Series, error) {
	out := map[string]Series{}
	for i, r := range results {
		data, err := json.Marshal(r)
		if err != nil {
			return nil, fmt.Errorf("encoding a result: %w", err)
		}
		var fields map[string]any
		if err := json.Unmarshal(data, &fields); err != nil {
			return nil, fmt.Errorf("decoding a result: %w", err)
		}
		for _, constant := range []string{"seed", "load", "nodes", "gpus"} {
			delete(fields, constant)
		}
		collect(out, "", fields, i, len(results))
	}
	return out, nil
}

func collect(into map[string]Series, prefix string, fields map[string]any, at, of int) {
	for name, value := range fields {
		switch v := value.(type) {
		case map[string]any:
			collect(into, prefix+name+".", v, at, of)
		case float64:
			s := into[prefix+name]
			if s == nil {
				s = slices.Repeat(Series{math.NaN()}, of)
				into[prefix+name] = s
			}
			s[at] = v
		}
	}
}

// byBestClass returns the policies of a cell, ours and its ablations first, then the
// others from best to worst.
func (c *CellSummary) byBestClass() []PolicySummary {
	var ours, peers []PolicySummary
	for _, p := range c.Policies {
		if isPeer(p.Policy) {
			peers = append(peers, p)
		} else {
			ours = append(ours, p)
		}
	}
	slices.SortStableFunc(peers, func(a, b PolicySummary) int {
		return cmp.Compare(b.Fields[fieldBest].Mean, a.Fields[fieldBest].Mean)
	})
	return append(ours, peers...)
}
