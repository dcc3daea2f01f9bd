// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/nvtopo/nvtopo/bench/internal/report"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// config is the extent of the measurements.
type config struct {
	Seed    uint64 `json:"seed"`
	Repeats int    `json:"repeats"`
	Random  int    `json:"randomFreeSets"` // per machine
	// Batch is how long one measurement repeats a pick, at least once.
	Batch time.Duration `json:"batchNs"`
	// Limit is the longest that a pick may take before it is a failure.
	Limit time.Duration `json:"limitNs"`
	// Slow is the number of steps from which a pick gets a process of its own,
	// outside the interleaved repeats; there it is repeated until Repeats or
	// SlowTotal is reached.
	Slow      float64       `json:"slowSteps"`
	SlowTotal time.Duration `json:"slowTotalNs"`
	// AllSteps is the greatest number of free GPUs with which ours is also
	// checked against all steps of the objective, on machines that have tables.
	AllSteps int `json:"allStepsFreeGPUs"`
	// LargestK is the greatest k measured where more than 8 GPUs are free.
	LargestK int `json:"largestK"`
	// Rounds is the number of walks of the table reads per measurement.
	Rounds int `json:"readRounds"`
}

func fullConfig() config {
	return config{
		Seed: 1, Repeats: 5, Random: 3, Batch: 500 * time.Microsecond, Limit: 5 * time.Second,
		Slow: 20_000, SlowTotal: time.Second, AllSteps: tableGPUs, LargestK: tableGPUs, Rounds: 200,
	}
}

// shortConfig is for tests: a few seconds, and picks in a process of their own
// for one free set only.
func shortConfig() config {
	return config{
		Seed: 1, Repeats: 2, Random: 1, Batch: 20 * time.Microsecond, Limit: 300 * time.Millisecond,
		Slow: 20_000, SlowTotal: time.Millisecond, AllSteps: 8, LargestK: 4, Rounds: 2,
	}
}

// outcome is one picker's answer to one question.
type outcome struct {
	Picker string        `json:"picker"`
	NS     report.Sample `json:"ns"` // per repeat
	Set    []int         `json:"set,omitempty"`
	// RegretGBps is the best ring minus that of the set; for the random picker
	// the mean of its draws. Optimal is the share of draws without regret.
	RegretGBps float64 `json:"regretGBps"`
	Optimal    float64 `json:"optimal"`
	Failed     string  `json:"failed,omitempty"`

	times int // picks per measurement; 0: measured already
}

// result is all answers to one question.
type result struct {
	Machine      string    `json:"machine"`
	GPUs         int       `json:"gpus"`
	Kind         string    `json:"kind"`
	Free         []int     `json:"free"`
	K            int       `json:"k"`
	Choice       bool      `json:"choice"` // used in regret and share of optimal picks
	BestRingGBps float64   `json:"bestRingGBps"`
	AllSteps     *bool     `json:"oursEqualsBruteForce,omitempty"` // in all steps of the objective
	Outcomes     []outcome `json:"outcomes"`

	question question
}

// measureBed lets every picker answer every question, then measures their times:
// picker after picker within a question, question after question within a
// repeat, each repeat beginning with another picker.
func measureBed(ctx context.Context, c config, b bed, asked []question) ([]result, error) {
	ps, t := pickers(b, c.Seed), newTruth(b.graph)
	results := make([]result, len(asked))
	for i, q := range asked {
		r, err := judge(ctx, c, b, t, ps, q)
		if err != nil {
			return nil, fmt.Errorf("%s, %s, k %d: %w", b.name, q.kind, q.k, err)
		}
		results[i] = r
	}
	for rep := range c.Repeats {
		for i := range results {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			for j := range ps {
				at := (j + rep) % len(ps)
				if o := &results[i].Outcomes[at]; o.times > 0 {
					o.NS = append(o.NS, nanoseconds(&ps[at], asked[i], o.times))
				}
			}
		}
	}
	return results, nil
}

// judge lets every picker answer once and rates the answers.
func judge(ctx context.Context, c config, b bed, t *truth, ps []picker, q question) (result, error) {
	best := t.bestRing(q.free, q.k)
	r := result{
		Machine: b.name, GPUs: b.graph.Len(), Kind: q.kind, Free: q.free.Positions(), K: q.k, Choice: q.hasChoice(),
		BestRingGBps: nvtopo.GBps(best), question: q,
	}
	for i := range ps {
		p := &ps[i]
		var o outcome
		if p.steps != nil && p.steps(q.free, q.k) > c.Slow {
			slow, err := pickSlowly(ctx, c, b, t, q, best)
			if err != nil {
				return r, err
			}
			o = slow
		} else {
			o = pickHere(c, t, p, q, best)
		}
		o.Picker = p.name
		r.Outcomes = append(r.Outcomes, o)
	}
	if b.graph.Len() <= tableGPUs && q.free.Len() <= c.AllSteps {
		same := t.agrees(q, nvtopo.MaskOf(r.Outcomes[0].Set...))
		r.AllSteps = &same
	}
	return r, nil
}

// pickHere answers in this process and determines how often a measurement has to
// repeat the pick.
func pickHere(c config, t *truth, p *picker, q question, best int64) outcome {
	o := outcome{times: 1}
	start := time.Now()
	set, err := p.pick(q.free, q.k)
	if took := time.Since(start); took < c.Batch {
		// The first call may have been slow for reasons of its own.
		const sample = 16
		o.times = max(1, int(float64(c.Batch.Nanoseconds())/max(1, nanoseconds(p, q, sample))))
	}
	if !p.quality {
		return o
	}
	if err != nil {
		o.Failed = err.Error()
		return o
	}
	sets := []nvtopo.Mask{set}
	for _, draw := range p.draws {
		if set, err := draw(q.free, q.k); err == nil {
			sets = append(sets, set)
		}
	}
	o.rate(t, sets, best)
	return o
}

// rate fills in the quality of the sets.
func (o *outcome) rate(t *truth, sets []nvtopo.Mask, best int64) {
	o.Set = sets[0].Positions()
	for _, s := range sets {
		regret := best - t.ring(s)
		o.RegretGBps += nvtopo.GBps(regret) / float64(len(sets))
		if regret == 0 {
			o.Optimal += 1 / float64(len(sets))
		}
	}
}

// pickSlowly lets child processes answer and measures them.
func pickSlowly(ctx context.Context, c config, b bed, t *truth, q question, best int64) (outcome, error) {
	var o outcome
	for total := time.Duration(0); len(o.NS) < c.Repeats && total < c.SlowTotal; {
		a, err := askOnce(ctx, b.name, q, c.Limit)
		if err != nil {
			return o, err
		}
		o.NS = append(o.NS, float64(a.NS))
		total += time.Duration(a.NS)
		o.Failed = a.Failed
		if a.Failed == "" && len(o.NS) == 1 {
			o.rate(t, []nvtopo.Mask{a.Set}, best)
		}
	}
	return o, nil
}

// nanoseconds returns the mean time of one of several equal picks.
func nanoseconds(p *picker, q question, times int) float64 {
	var kept nvtopo.Mask
	start := time.Now()
	for range times {
		set, _ := p.pick(q.free, q.k)
		kept |= set
	}
	took := float64(time.Since(start).Nanoseconds()) / float64(times)
	if kept == ^nvtopo.Mask(0) {
		return -took // never: no machine here has 64 GPUs; it keeps the answers in use
	}
	return took
}
