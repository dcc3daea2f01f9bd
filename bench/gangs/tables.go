// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/nvtopo/nvtopo/bench/internal/report"
)

// leftOut describes the limits of the figures.
const leftOut = `What the rules leave out: they are how each system chooses nodes, as published, and not the systems.
Quotas, order of queues, preemption, other plugins' scores, and what goes wrong between a plan and
its pods are not there, in no policy. A gang starts the moment that it fits, later jobs may pass it,
and no job runs faster for its place. Kueue's rule prefers the rack, with nodes below it; its
balanced placement and slices are not used. Volcano's is without the blind first pod of its soft
mode. Pods of no gang go to the fullest node under all rules but ours: what other scores would make
of them is not measured. GPUs are taken by the lowest index, as a device plugin without a hint does.`

// writeReport prints the report.
func writeReport(w io.Writer, r *Result) error {
	fmt.Fprintf(w, "Mean of %d seeds; %d jobs a trace, %d on the large fabric, the first %g %% not counted.\n\n", len(r.Seeds), r.Jobs, r.Large, 100*warmUp)
	if r.Few {
		fmt.Fprintf(w, "**Fewer or other jobs, cells or seeds than the bars are set for: what is kept or missed below means little.**\n\n")
	}
	var tables []*report.Table
	for _, name := range clustersOf(r.Cells) {
		cells := slices.DeleteFunc(slices.Clone(r.Cells), func(c CellSummary) bool { return c.Cluster != name || len(c.Policies) < 2 })
		if len(cells) == 0 {
			continue
		}
		title := cells[0].Title + " (" + cells[0].Machine + ")"
		tables = append(tables, oneRack(title, cells), details(title, cells))
	}
	tables = append(tables, planTable(r.Plans), barTable(r.Bars))
	for _, t := range tables {
		if len(t.Rows) == 0 {
			continue
		}
		if err := t.Write(w); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "%s\n\n", leftOut)
	return err
}

func clustersOf(cells []CellSummary) (out []string) {
	for i := range cells {
		if !slices.Contains(out, cells[i].Cluster) {
			out = append(out, cells[i].Cluster)
		}
	}
	return out
}

// oneRack returns the table of the share of gangs in one rack.
func oneRack(title string, cells []CellSummary) *report.Table {
	t := &report.Table{
		Title:  "**" + title + ": gangs in one rack, %, of those that could be in one when nothing runs**",
		Header: []string{"mix, load"},
	}
	for i := range cells[0].Policies {
		t.Header = append(t.Header, cells[0].Policies[i].String())
	}
	for i := range cells {
		row := []string{cells[i].String()}
		for _, p := range cells[i].Policies {
			row = append(row, decimals(100*p.OneRack, 1))
		}
		t.Add(row...)
	}
	return t
}

func decimals(v float64, digits int) string { return strconv.FormatFloat(v, 'f', digits, 64) }

// details returns a table with a row for each policy of each cell.
func details(title string, cells []CellSummary) *report.Table {
	t := &report.Table{
		Title: "**" + title + ": the rest**",
		Header: []string{
			"mix, load, policy", "gangs", "racks over fewest", "spines over fewest", "one spine, %", "levels lost", "wait of gangs, s",
			"wait of pods, s", "not carried out", "best band, %", "allocated, %",
		},
	}
	for i := range cells {
		for _, p := range cells[i].Policies {
			t.Add(cells[i].String()+", "+p.String(), strconv.Itoa(p.Gangs), decimals(p.RacksOver, 3), decimals(p.SpinesOver, 3), decimals(100*p.OneSpine, 1),
				decimals(p.LevelRegret, 4), decimals(p.WaitS, 0), decimals(p.AllWaitS, 0), strconv.Itoa(p.NotCarriedOut),
				decimals(100*p.BestBand, 2), decimals(100*p.Allocated, 1))
		}
	}
	return t
}

func planTable(plans []PlanTime) *report.Table {
	t := &report.Table{
		Title:  "**Time of a plan at 5000 nodes, ms of one thread**",
		Header: []string{"pods", "plans", "p50", "p99", "longest"},
	}
	for _, p := range plans {
		t.Add(strconv.Itoa(p.Pods), strconv.Itoa(p.Plans), decimals(p.P50Ms, 3), decimals(p.P99Ms, 3), decimals(p.MaxMs, 3))
	}
	return t
}

// barTable returns a table with one row for each promise; promises of 0 that hold in several
// cells share one row.
func barTable(bars []Bar) *report.Table {
	t := &report.Table{
		Title:  fmt.Sprintf("**Bars: %d of %d kept**", len(bars)-missedOf(bars), len(bars)),
		Header: []string{"cell", "promise", "wanted", "got", "kept"},
	}
	none := map[string][]string{} // promises of 0 that are kept -> cells
	for i := range bars {
		b := &bars[i]
		if b.Want == "0" && b.Kept {
			what := b.Promise[strings.LastIndex(b.Promise, ": ")+2:]
			none[what] = append(none[what], b.Cell)
			continue
		}
		kept := "yes"
		if !b.Kept {
			kept = "**NO**"
		}
		t.Add(b.Cell, b.Promise, b.Want, b.Got, kept)
	}
	for _, what := range []string{promiseCarriedOut, promiseLevel, promiseOneModel, promiseAllRan} {
		if n := len(none[what]); n > 0 {
			t.Add(fmt.Sprintf("%d cells and patiences", n), what, "0", "0", "yes")
		}
	}
	return t
}
