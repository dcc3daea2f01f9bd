// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"strconv"

	"github.com/nvtopo/nvtopo/bench/internal/report"
)

// method stands above the tables.
const method = `Pods are made before the scheduler starts and wait. Pods/s and CPU are of the window that ends with the last
binding. It begins with the first, so that reading caches is not in it, nor our graphs, for which GPU pods wait. Pods
without GPUs do not wait for them: with none the scheduler reads them in the window, with none-warm before it.
Ratios compare cells of the same repeat. Peak is the most memory that the scheduler ever had resident. Attempt latency includes binding and is read from a
histogram whose buckets double, so that a percentile is exact to a factor of two only. CPU of the API server
includes etcd's. Writes are creates, updates and patches of pods and their subresources, refused ones (overload,
conflicts) apart; events are not counted.`

// Result is the content of the JSON file.
type Result struct {
	Options *options  `json:"options"`
	Summary []Summary `json:"summary"`
	Cells   []Cell    `json:"cells"`
}

// Spread is the median and the quartiles of the repeats.
type Spread struct {
	Median float64 `json:"median"`
	Low    float64 `json:"q1"`
	High   float64 `json:"q3"`
}

// Summary is a profile's row: the medians over its repeats.
type Summary struct {
	Nodes    int    `json:"nodes"`
	Workload string `json:"workload"`
	Profile  string `json:"profile"`
	Pods     int    `json:"pods"`
	Repeats  int    `json:"repeats"`

	PodsPerSecond Spread `json:"podsPerSecond"`
	// RatioToStock compares cells of the same repeat; absent without stock.
	RatioToStock *Spread `json:"ratioToStock,omitempty"`
	PeakToStock  *Spread `json:"peakToStock,omitempty"` // likewise, of the peak memory

	WindowFrom int `json:"windowFrom"`
	// GraphsMissing is how many nodes' graphs, in the worst repeat, were not read as a
	// window began that should begin after them.
	GraphsMissing int `json:"graphsMissing"`

	AttemptP50Ms      float64 `json:"attemptP50Ms"`
	AttemptP99Ms      float64 `json:"attemptP99Ms"`
	SchedulerCPUMs    float64 `json:"schedulerCPUMsPerPod"`
	ControlPlaneCPUMs float64 `json:"controlPlaneCPUMsPerPod"`
	WritesPerPod      float64 `json:"writesPerPod"`
	RefusedPerPod     float64 `json:"refusedPerPod"`
	SchedulerPeakMiB  float64 `json:"schedulerPeakMiB"`
	LiveHeapMiB       float64 `json:"liveHeapMiB"`
	HoldCPU           float64 `json:"holdCPUMsPerSecond"`
	HoldControlPlane  float64 `json:"holdControlPlaneCPUMsPerSecond"`
	LoadCPU           float64 `json:"loadCPUMsPerSecond"`
	HostileWrites     float64 `json:"hostileWritesPerSecond"`
	RenewalP50Ms      float64 `json:"renewalP50Ms"`
	RenewalP99Ms      float64 `json:"renewalP99Ms"`
	// What hostile nodes cost: to cells of the same repeat without them.
	RatioToHonest    *Spread `json:"ratioToHonest,omitempty"`
	RenewalsToHonest *Spread `json:"renewalP99ToHonest,omitempty"`
	HintUsed         float64 `json:"hintUsed"`
	Unscheduled      float64 `json:"unscheduledAttempts"` // attempts that did not place their pod
}

// hintUsed is the result of a cycle that took its node from the one before it.
const hintUsed = "hint_used"

func newResult(o *options, cells []Cell) *Result {
	r := &Result{Options: o, Cells: cells}
	for _, nodes := range o.Nodes {
		for _, w := range o.Workloads {
			r.Summary = append(r.Summary, summarise(o, cellsOf(cells, nodes, w))...)
		}
	}
	return r
}

func cellsOf(cells []Cell, nodes int, workload string) []Cell {
	var of []Cell
	for i := range cells {
		if cells[i].Nodes == nodes && cells[i].Workload == workload {
			of = append(of, cells[i])
		}
	}
	return of
}

// summarise makes the rows of one workload and size.
func summarise(o *options, cells []Cell) []Summary {
	byProfile := map[string][]*Cell{}
	for i := range cells {
		byProfile[cells[i].Profile] = append(byProfile[cells[i].Profile], &cells[i])
	}
	var out []Summary
	for _, profile := range o.Profiles {
		of := byProfile[profile]
		if len(of) == 0 {
			continue
		}
		median := func(value func(*Cell) float64) float64 { return sampleOf(of, value).Median() }
		out = append(out, Summary{
			Nodes: of[0].Nodes, Workload: of[0].Workload, Profile: profile, Pods: of[0].Pods, Repeats: len(of),
			PodsPerSecond:     spreadOf(sampleOf(of, podsPerSecond)),
			RatioToStock:      ratios(of, byProfile[profileStock], podsPerSecond),
			PeakToStock:       ratios(of, byProfile[profileStock], func(c *Cell) float64 { return c.SchedulerPeakMiB }),
			WindowFrom:        of[0].WindowFrom,
			GraphsMissing:     graphsMissing(of),
			AttemptP50Ms:      median(func(c *Cell) float64 { return c.AttemptP50Ms }),
			AttemptP99Ms:      median(func(c *Cell) float64 { return c.AttemptP99Ms }),
			SchedulerCPUMs:    median(func(c *Cell) float64 { return c.SchedulerCPUMs }),
			ControlPlaneCPUMs: median(func(c *Cell) float64 { return c.ControlPlaneCPUMs }),
			WritesPerPod:      median(func(c *Cell) float64 { return c.WritesPerPod }),
			RefusedPerPod:     median(func(c *Cell) float64 { return c.RefusedPerPod }),
			SchedulerPeakMiB:  median(func(c *Cell) float64 { return c.SchedulerPeakMiB }),
			LiveHeapMiB:       median(func(c *Cell) float64 { return c.LiveHeapMiB }),
			HoldCPU:           median(func(c *Cell) float64 { return c.HoldCPU }),
			HoldControlPlane:  median(func(c *Cell) float64 { return c.HoldControlPlaneCPU }),
			LoadCPU:           median(func(c *Cell) float64 { return c.LoadCPU }),
			HostileWrites:     median(func(c *Cell) float64 { return c.HostileWrites }),
			RenewalP50Ms:      median(func(c *Cell) float64 { return c.RenewalP50Ms }),
			RenewalP99Ms:      median(func(c *Cell) float64 { return c.RenewalP99Ms }),
			RatioToHonest:     ratios(of, byProfile[profileBinding], podsPerSecond),
			RenewalsToHonest:  ratios(of, byProfile[profileBinding], func(c *Cell) float64 { return c.RenewalP99Ms }),
			HintUsed:          median(func(c *Cell) float64 { return c.Batch[hintUsed] }),
			Unscheduled:       median(unscheduled),
		})
	}
	return out
}

func podsPerSecond(c *Cell) float64 { return c.PodsPerSecond }

func unscheduled(c *Cell) float64 {
	sum := 0.0
	for result, n := range c.Attempts {
		if result != "scheduled" {
			sum += n
		}
	}
	return sum
}

func sampleOf(cells []*Cell, value func(*Cell) float64) report.Sample {
	s := make(report.Sample, len(cells))
	for i, c := range cells {
		s[i] = value(c)
	}
	return s
}

func spreadOf(s report.Sample) Spread {
	low, high := s.Quartiles()
	return Spread{Median: s.Median(), Low: low, High: high}
}

// ratios compares a value of each cell with that of another profile's cell of the same
// repeat; nil if there is none.
func ratios(cells, others []*Cell, value func(*Cell) float64) *Spread {
	other := map[int]float64{} // by repeat
	for _, c := range others {
		other[c.Repeat] = value(c)
	}
	var s report.Sample
	for _, c := range cells {
		if v := other[c.Repeat]; v > 0 {
			s = append(s, value(c)/v)
		}
	}
	if len(s) == 0 {
		return nil
	}
	out := spreadOf(s)
	return &out
}

func graphsMissing(cells []*Cell) int {
	missing := 0
	for _, c := range cells {
		if c.WindowFrom > 0 && c.Profile != profileStock && c.Profile != profileStockAll {
			missing = max(missing, c.Nodes-c.GraphsRead)
		}
	}
	return missing
}

// tableOf prints the cells of one workload and size.
func tableOf(o *options, cells []Cell) *report.Table {
	rows := summarise(o, cells)
	t := &report.Table{Header: []string{
		"profile", "pods/s (quartiles)", "ratio to stock (quartiles)", "attempt p50 ms", "p99 ms", "scheduler CPU ms/pod",
		"API server CPU ms/pod", "writes/pod", "refused/pod", "peak MiB", "live heap MiB", hintUsed, "attempts in vain",
	}}
	for i := range rows {
		r := &rows[i]
		if t.Title == "" {
			t.Title = fmt.Sprintf("%d nodes, %d pods: %s (%d repeats)", r.Nodes, r.Pods, findWorkload(r.Workload).title, r.Repeats)
		}
		t.Add(r.Profile, spreadText(r.PodsPerSecond, 0), ratioText(r.RatioToStock), number(r.AttemptP50Ms, 1), number(r.AttemptP99Ms, 1),
			number(r.SchedulerCPUMs, 2), number(r.ControlPlaneCPUMs, 2), number(r.WritesPerPod, 2), number(r.RefusedPerPod, 2), number(r.SchedulerPeakMiB, 0),
			number(r.LiveHeapMiB, 0), number(r.HintUsed, 0), number(r.Unscheduled, 0))
	}
	return t
}

func spreadText(s Spread, decimals int) string {
	return number(s.Median, decimals) + " (" + number(s.Low, decimals) + "–" + number(s.High, decimals) + ")"
}

func number(v float64, decimals int) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return "–"
	}
	return strconv.FormatFloat(v, 'f', decimals, 64)
}
