// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"

	"github.com/nvtopo/nvtopo/bench/internal/plot"
	"github.com/nvtopo/nvtopo/internal/lab/sim"
)

// saveFigures draws all figures into a directory and returns their paths.
func saveFigures(dir string, r *Result) ([]string, error) {
	var paths []string
	save := func(name string, f *plot.Figure) error {
		if f == nil {
			return nil
		}
		path := filepath.Join(dir, name)
		paths = append(paths, path)
		return f.Save(path)
	}
	for _, n := range sizesOf(r.Cells) {
		if err := save(fmt.Sprintf("quality-best-class-%d.svg", n), barsOf(r.Cells, n, column{fieldBest, "best class", 100, 0},
			fmt.Sprintf("Multi-GPU pods on the best links their kind of machine has, %d nodes", n),
			"share of multi-GPU pods in the best class, %, and 95 % confidence interval")); err != nil {
			return nil, err
		}
		if err := save(fmt.Sprintf("quality-stranded-%d.svg", n), linesOf(r.Cells, n, column{fieldStranded, "stranded", 100, 0},
			fmt.Sprintf("Free GPUs in no best-class group of four, %d nodes", n), "share of the free GPUs, %")); err != nil {
			return nil, err
		}
		if err := save(fmt.Sprintf("quality-wait-%d.svg", n), linesOf(r.Cells, n, column{fieldWaitMulti, "wait", 1, 0},
			fmt.Sprintf("Waiting time of multi-GPU pods, %d nodes", n), "mean wait, s, logarithmic")); err != nil {
			return nil, err
		}
	}
	return paths, nil
}

// plain reports whether figures show the cell.
func (c *Cell) plain(nodes int) bool {
	return c.Nodes == nodes && c.Trace == traceMix && c.PodPolicy == ""
}

func sizesOf(cells []CellSummary) []int {
	var out []int
	for i := range cells {
		out = append(out, cells[i].Nodes)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// cellOf returns the plain cell of a cluster, size and load; nil if there is none.
func cellOf(cells []CellSummary, cluster string, nodes int, load float64) *CellSummary {
	i := slices.IndexFunc(cells, func(c CellSummary) bool {
		return c.plain(nodes) && c.Cluster == cluster && c.Load == load
	})
	if i < 0 {
		return nil
	}
	return &cells[i]
}

func loadsOf(cells []CellSummary, nodes int) []float64 {
	var out []float64
	for i := range cells {
		if cells[i].plain(nodes) {
			out = append(out, cells[i].Load)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// value returns a field of a policy in a cell, NaN where either is missing.
func (c *CellSummary) value(policy string, col column) plot.Estimate {
	if c == nil {
		return plot.Estimate{Mean: math.NaN()}
	}
	p := c.policy(policy)
	if p == nil {
		return plot.Estimate{Mean: math.NaN()}
	}
	e := p.Fields[col.field]
	return plot.Estimate{Mean: e.Mean * col.scale, Half: e.CI95 * col.scale}
}

// barsOf returns a figure with a panel per cluster, a group of bars per policy and
// a colour per load.
func barsOf(cells []CellSummary, nodes int, col column, title, label string) *plot.Figure {
	f := &plot.Figure{Title: title, Columns: 2}
	loads := checkedLoads()
	for _, k := range kinds() {
		first := cellOf(cells, k.name, nodes, loads[0])
		if first == nil || k.sizes {
			continue
		}
		panel := plot.Panel{Title: k.title, XLabel: label, Max: 100}
		for _, p := range first.byBestClass() {
			if isPeer(p.Policy) || p.Policy == sim.Ours {
				panel.Categories = append(panel.Categories, p.Policy)
			}
		}
		for _, load := range loads {
			s := plot.Series{Name: fmt.Sprintf("load %g", load)}
			c := cellOf(cells, k.name, nodes, load)
			for _, p := range panel.Categories {
				s.Values = append(s.Values, c.value(p, col))
			}
			panel.Series = append(panel.Series, s)
		}
		f.Panels = append(f.Panels, panel)
		f.Description += fmt.Sprintf("%s: ours %.1f %% at load %g, the best other policy, %s, %.1f %%. ",
			k.title, first.value(sim.Ours, col).Mean, loads[0], first.BestOther, first.value(first.BestOther, col).Mean)
	}
	if len(f.Panels) == 0 {
		return nil
	}
	return f
}

// compared returns the policies whose lines can be distinguished in one panel.
func compared() []string {
	return []string{sim.Ours, reference, "binpack+best-effort", "spread+best-effort", "fgd+exact", oursNoResidual}
}

// linesOf returns a figure with a panel per cluster and a line per policy over the
// load.
func linesOf(cells []CellSummary, nodes int, col column, title, label string) *plot.Figure {
	loads := loadsOf(cells, nodes)
	f := &plot.Figure{Title: title, Columns: 2}
	for _, k := range kinds() {
		if len(loads) == 0 || k.sizes || cellOf(cells, k.name, nodes, loads[0]) == nil {
			continue
		}
		panel := plot.Panel{Title: k.title, XLabel: "load offered, GPU time asked for by GPU time there is", YLabel: label, X: loads, Log: col.field == fieldWaitMulti}
		for _, policy := range compared() {
			s := plot.Series{Name: policy}
			for _, load := range loads {
				s.Values = append(s.Values, cellOf(cells, k.name, nodes, load).value(policy, col))
			}
			panel.Series = append(panel.Series, s)
		}
		f.Panels = append(f.Panels, panel)
		f.Description += fmt.Sprintf("%s: ours %.1f at load %g, %s %.1f. ", k.title,
			panel.Series[0].Values[0].Mean, loads[0], reference, panel.Series[1].Values[0].Mean)
	}
	if len(f.Panels) == 0 {
		return nil
	}
	return f
}
