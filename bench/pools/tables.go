// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/nvtopo/nvtopo/bench/internal/report"
)

// method is printed above the table.
const method = `All jobs are made at once, by 32 clients, of one pod with 4 GPUs each. All of them fit into their
tenants' quotas. Jobs/s are counted from the first request for a job to the moment at which the last one was
seen admitted by Kueue, and its pod bound by the scheduler. The ratio compares cells of the same repeat. Memory is what
is resident when the last pod has been bound.`

// result is the content of the JSON file.
type result struct {
	Options *options `json:"options"`
	Cells   []Cell   `json:"cells"`
}

// table returns a table with a row for each scheduler: medians over its repeats.
func table(o *options, cells []Cell) *report.Table {
	t := &report.Table{
		Title:  fmt.Sprintf("%d jobs of %d tenants at once, %d nodes of 8 GPUs, %d repeats", o.Jobs, o.Tenants, o.Nodes, o.Repeats),
		Header: []string{"scheduler", "admitted jobs/s", "bound jobs/s", "ratio to stock (quartiles)"},
	}
	for _, p := range processes {
		t.Header = append(t.Header, p+" MiB", "CPU ms/job")
	}
	for _, profile := range o.Profiles {
		of := sampleOf(cells, profile)
		ratio := ratios(cells, profile)
		row := []string{
			profile,
			report.Number(of(func(c *Cell) float64 { return float64(c.Jobs) / c.AdmittedSeconds }).Median(), 1),
			report.Number(of((*Cell).jobsPerSecond).Median(), 1),
			ratio.Spread(2),
		}
		for _, p := range processes {
			row = append(row,
				report.Number(of(func(c *Cell) float64 { return c.ResidentMiB[p] }).Median(), 0),
				report.Number(of(func(c *Cell) float64 { return c.CPUMs[p] }).Median(), 1))
		}
		t.Add(row...)
	}
	return t
}

// sampleOf returns a function that collects a value from all cells of a
// scheduler.
func sampleOf(cells []Cell, profile string) func(func(*Cell) float64) report.Sample {
	return func(value func(*Cell) float64) report.Sample {
		var out report.Sample
		for i := range cells {
			if cells[i].Profile == profile {
				out = append(out, value(&cells[i]))
			}
		}
		return out
	}
}

// ratios compares the bound jobs/s of each cell with stock's of the same repeat.
func ratios(cells []Cell, profile string) report.Sample {
	stock := map[int]float64{}
	for i := range cells {
		if cells[i].Profile == profileStock {
			stock[cells[i].Repeat] = cells[i].jobsPerSecond()
		}
	}
	var out report.Sample
	for i := range cells {
		if s := stock[cells[i].Repeat]; cells[i].Profile == profile && s > 0 {
			out = append(out, cells[i].jobsPerSecond()/s)
		}
	}
	return out
}
