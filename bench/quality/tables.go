// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"math"
	"strconv"

	"github.com/nvtopo/nvtopo/bench/internal/report"
	"github.com/nvtopo/nvtopo/internal/lab/sim"
)

// column is a field in the form of the tables.
type column struct {
	field, header string
	scale         float64
	digits        int
}

func columns() []column {
	return []column{
		{fieldBest, "best class, %", 100, 1},
		{fieldRing, "ring ratio, %", 100, 1},
		{fieldRegret, "regret, GB/s", 1, 2},
		{fieldNUMA, "one NUMA node, %", 100, 1},
		{fieldRejections, "rejections", 1, 0},
		{fieldAllocation, "allocated, %", 100, 1},
		{fieldFGD, "FGD fragm., %", 100, 1},
		{fieldStranded, "stranded for 4, %", 100, 1},
		{fieldWait, "wait, s", 1, 0},
		{fieldP99, "p99 wait, s", 1, 0},
		{fieldWaitMulti, "wait multi, s", 1, 0},
		{fieldWait8, "wait 8 GPUs, s", 1, 0},
	}
}

// format returns the mean and, if known, half the confidence interval.
func (e Estimate) format(scale float64, digits int) string {
	s := strconv.FormatFloat(e.Mean*scale, 'f', digits, 64)
	if math.IsNaN(e.CI95) || e.CI95 == 0 {
		return s
	}
	return s + " ± " + strconv.FormatFloat(e.CI95*scale, 'f', digits, 64)
}

// writeReport prints the report: a table per cell, then the comparison with the best
// other policy, then the check list.
func writeReport(w io.Writer, r *Result) error {
	for i := range r.Cells {
		if err := cellTable(&r.Cells[i]).Write(w); err != nil {
			return err
		}
	}
	for _, t := range []*report.Table{comparison(r.Cells), residualTerm(r.Cells), sizes(r.Cells)} {
		if err := t.Write(w); err != nil {
			return err
		}
	}
	return checkList(r.Checks).Write(w)
}

func cellTable(c *CellSummary) *report.Table {
	t := &report.Table{Title: "**" + c.String() + "**", Header: []string{"policy"}}
	for _, col := range columns() {
		t.Header = append(t.Header, col.header)
	}
	for _, p := range c.byBestClass() {
		row := []string{p.Policy}
		for _, col := range columns() {
			row = append(row, p.Fields[col.field].format(col.scale, col.digits))
		}
		t.Add(row...)
	}
	return t
}

// comparison returns the table of ours against the best other policy of each cell,
// and against the best that can be run without our code.
func comparison(cells []CellSummary) *report.Table {
	t := &report.Table{
		Title: "**Ours against the best other policy, share of multi-GPU pods in the best class, %**",
		Header: []string{
			"cell", "ours", "best other", "its share", "ours less it", "best without the picker exact", "its share", "ours less it",
		},
	}
	for i := range cells {
		c := &cells[i]
		if c.sizes() {
			continue
		}
		row := []string{c.String(), c.policy(sim.Ours).Fields[fieldBest].format(100, 2)}
		for _, name := range []string{c.BestOther, c.BestForeign} {
			p := c.policy(name)
			if p == nil {
				row = append(row, "", "", "")
				continue
			}
			row = append(row, name, p.Fields[fieldBest].format(100, 2), p.OursLess[fieldBest].format(100, 2))
		}
		t.Add(row...)
	}
	return t
}

// residualTerm returns the table of ours with and without its consideration for later
// pods.
func residualTerm(cells []CellSummary) *report.Table {
	names := []string{sim.Ours, oursNoFragmentation, oursNoResidual, reference}
	t := &report.Table{
		Title:  "**What the residual term does: free GPUs in no best-class group of four, %, and multi-GPU pods in the best class, %**",
		Header: []string{"cell"},
	}
	cols := []column{{fieldStranded, "stranded", 100, 1}, {fieldBest, "best", 100, 2}}
	for _, col := range cols {
		for _, name := range names {
			t.Header = append(t.Header, col.header+", "+name)
		}
	}
	for i := range cells {
		c := &cells[i]
		if !c.plain(c.Nodes) || c.sizes() {
			continue
		}
		row := []string{c.String()}
		for _, col := range cols {
			for _, name := range names {
				row = append(row, c.policy(name).Fields[col.field].format(col.scale, col.digits))
			}
		}
		t.Add(row...)
	}
	return t
}

// sizes returns the waits of pods of 8 GPUs where only half of the machines have as
// many. When a pod starts depends on the rule for the node only, so each has one
// column.
func sizes(cells []CellSummary) *report.Table {
	t := &report.Table{
		Title:  "**Machines of different size: mean wait of pods of 8 GPUs, s, and multi-GPU pods in the best class, %**",
		Header: []string{"cell"},
	}
	waits := []string{sim.Ours, oursNoFragmentation, "binpack+exact", "fgd+exact", "spread+exact"}
	bests := []string{sim.Ours, "binpack+exact", "fgd+exact"}
	for _, name := range waits {
		t.Header = append(t.Header, "wait, "+name)
	}
	for _, name := range bests {
		t.Header = append(t.Header, "best, "+name)
	}
	for i := range cells {
		c := &cells[i]
		if !c.sizes() {
			continue
		}
		row := []string{c.String()}
		for _, name := range waits {
			row = append(row, c.policy(name).Fields[fieldWait8].format(1, 0))
		}
		for _, name := range bests {
			row = append(row, c.policy(name).Fields[fieldBest].format(100, 2))
		}
		t.Add(row...)
	}
	return t
}

func checkList(checks []Check) *report.Table {
	missed := 0
	for i := range checks {
		if !checks[i].Pass {
			missed++
		}
	}
	t := &report.Table{
		Title:  fmt.Sprintf("**Check list: %d of %d kept**", len(checks)-missed, len(checks)),
		Header: []string{"cell", "promise", "want", "measured", "kept"},
	}
	for i := range checks {
		c := &checks[i]
		kept := "yes"
		if !c.Pass {
			kept = "**NO**"
		}
		if !c.Decided {
			kept += ", but not for sure"
		}
		t.Add(c.Cell.String(), c.Promise, c.Want, c.Measured, kept)
	}
	return t
}
