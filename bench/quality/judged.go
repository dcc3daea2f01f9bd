// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/nvtopo/nvtopo/bench/internal/report"
	"github.com/nvtopo/nvtopo/internal/lab/sim"
)

// fieldAllReduce decides between policies; see judge.Verdict.
const (
	fieldAllReduce   = "judged.allReduceMS"
	fieldCompletion  = "judged.completionS"
	fieldLargestWait = "judged.largestWaitS"
	fieldUnfinished  = "unfinished"
)

// largestError is the greatest share of the deciding mean that half of its 95 % interval may be. A cell
// in which it is more for some policy is replayed with more seeds, moreSeeds at a time and mostSeeds in
// all.
const (
	largestError = 0.025
	moreSeeds    = 4
	mostSeeds    = 24
)

// sure reports whether the deciding mean of every policy of a cell is known to within largestError.
func (c *CellSummary) sure() bool {
	for i := range c.Policies {
		if e := c.Policies[i].Fields[fieldAllReduce]; !(e.CI95 <= largestError*e.Mean) {
			return false
		}
	}
	return true
}

// untilSure replays cells whose deciding mean is not precise enough with more seeds, up to mostSeeds.
// Cells in which durations depend on the placement keep the first seeds.
func untilSure(ctx context.Context, o *options, tasks []task, outcomes []outcome, progress func(done, of int)) error {
	for n := len(o.seeds); n < o.mostSeeds; n += moreSeeds {
		cells, err := summarise(tasks, outcomes)
		if err != nil {
			return err
		}
		var wide []task
		var at []int
		for i := range cells {
			if !tasks[i].RunsByPlacement && !cells[i].sure() {
				wide, at = append(wide, tasks[i]), append(at, i)
			}
		}
		if len(wide) == 0 {
			return nil
		}
		var seeds []uint64
		for s := n; s < min(n+moreSeeds, o.mostSeeds); s++ {
			seeds = append(seeds, uint64(s)+1)
		}
		more, err := replayAll(ctx, wide, seeds, o.workers, progress)
		if err != nil {
			return err
		}
		for w, i := range at {
			for v := range outcomes[i] {
				outcomes[i][v] = append(outcomes[i][v], more[w][v]...)
			}
		}
	}
	return nil
}

// Promises for a judged cell.
const (
	slowerBy      = 1.05 // time of an all-reduce, relative to the best policy's
	nearTheBest   = 1.10 // the same for the policies whose waits are compared
	longerThan    = 1.25 // wait of the largest pods, relative to the shortest of these
	starvedBy     = 2    // wait of any size, relative to binpack's
	starvedBelowS = 60   // waits below that many seconds are never too long
)

// missed returns the promises that a cell does not keep.
func (c *CellSummary) missed() (out []string) {
	ours, ref := c.policy(sim.Ours), c.policy(reference)
	if ours == nil || ref == nil {
		return nil
	}
	of := func(p *PolicySummary, field string) float64 { return p.Fields[field].Mean }
	best := ours
	for i := range c.Policies {
		if p := &c.Policies[i]; isPeer(p.Policy) && of(p, fieldAllReduce) < of(best, fieldAllReduce) {
			best = p
		}
	}
	if t, b := of(ours, fieldAllReduce), of(best, fieldAllReduce); t > slowerBy*b {
		out = append(out, fmt.Sprintf("%.1f ms, %s %.1f", t, best.Policy, b))
	}
	shortest := ours
	for i := range c.Policies {
		p := &c.Policies[i]
		if isPeer(p.Policy) && of(p, fieldAllReduce) <= nearTheBest*of(best, fieldAllReduce) && of(p, fieldLargestWait) < of(shortest, fieldLargestWait) {
			shortest = p
		}
	}
	if w, s := of(ours, fieldLargestWait), of(shortest, fieldLargestWait); w > max(starvedBelowS, longerThan*s) {
		out = append(out, fmt.Sprintf("the largest wait %.0f s, with %s %.0f", w, shortest.Policy, s))
	}
	for _, k := range c.judgedSizes() {
		field := fmt.Sprintf("judged.bySize.%d.meanWaitS", k)
		if w, b := of(ours, field), of(ref, field); w > max(starvedBelowS, starvedBy*b) {
			out = append(out, fmt.Sprintf("pods of %d wait %.0f s, with %s %.0f", k, w, reference, b))
		}
	}
	return out
}

// judgedSizes returns the pod sizes, in GPUs, with measured waits.
func (c *CellSummary) judgedSizes() (out []int) {
	for field := range c.Policies[0].Fields {
		if size, ok := strings.CutSuffix(strings.TrimPrefix(field, "judged.bySize."), ".pods"); ok {
			if k, err := strconv.Atoi(size); err == nil {
				out = append(out, k)
			}
		}
	}
	slices.Sort(out)
	return out
}

// writeJudged prints a table of all fleets for each load and figure, the cells that keep their
// promises, then a table for each cell, and the means that are not precise enough.
func writeJudged(w io.Writer, r *Result) error {
	for _, t := range append(fleetTables(r.Cells), promises(r.Cells)) {
		if err := t.Write(w); err != nil {
			return err
		}
	}
	var unsure []string
	for i := range r.Cells {
		c := &r.Cells[i]
		if err := judgedTable(c).Write(w); err != nil {
			return err
		}
		for _, p := range c.Policies {
			if e := p.Fields[fieldAllReduce]; !c.RunsByPlacement && !(e.CI95 <= largestError*e.Mean) {
				unsure = append(unsure, fmt.Sprintf("%s, %s: %s ms", c.String(), p.Policy, e.format(1, 2)))
			}
		}
	}
	fmt.Fprintf(w, "Mean times of an all-reduce whose 95 %% interval is wider than ± %g %%: %d\n", 100*largestError, len(unsure))
	for _, u := range unsure {
		fmt.Fprintln(w, "*", u)
	}
	fmt.Fprintln(w)
	return nil
}

// fleetFigures are the figures by which fleets are compared in one table each.
var fleetFigures = []struct {
	title, field string
	digits       int
	byPlacement  bool
}{
	{"All-reduce, ms", fieldAllReduce, 1, false},
	{"Mean wait of the largest pods, s", fieldLargestWait, 0, false},
	{"Runs that depend on GPUs and links: from arrival to end, weighed by GPUs, s", fieldCompletion, 0, true},
}

// fleetTables returns a table for each figure and load, with a row for each fleet. Half of the interval
// is that of ours.
func fleetTables(cells []CellSummary) (out []*report.Table) {
	for _, f := range fleetFigures {
		for _, load := range judgedLoads() {
			t := &report.Table{Title: fmt.Sprintf("**%s, load %g**", f.title, load)}
			for i := range cells {
				c := &cells[i]
				if c.Load != load || c.RunsByPlacement != f.byPlacement {
					continue
				}
				row := []string{c.Cluster, strconv.Itoa(c.seeds())}
				header := []string{"fleet", "seeds"}
				for _, p := range c.Policies {
					e := p.Fields[f.field]
					header = append(header, shortName(p.Policy))
					if p.Policy != sim.Ours {
						e.CI95 = 0
					}
					row = append(row, e.format(1, f.digits))
				}
				t.Header = header
				t.Add(row...)
			}
			if len(t.Rows) > 0 {
				out = append(out, t)
			}
		}
	}
	return out
}

// shortName returns a policy's name in the head of a table.
func shortName(policy string) string {
	if strings.HasPrefix(policy, "spread+") && !strings.HasSuffix(policy, "+exact") {
		return "stock"
	}
	return strings.TrimSuffix(strings.TrimPrefix(policy, sim.Ours+":"), "+exact")
}

// seeds returns the number of seeds of a cell.
func (c *CellSummary) seeds() int {
	return len(c.Policies[0].Seeds[fieldAllReduce])
}

// promises returns a table of the cells with missed promises.
func promises(cells []CellSummary) *report.Table {
	kept, all := 0, 0
	t := &report.Table{Header: []string{"fleet, load", "not kept"}}
	for i := range cells {
		c := &cells[i]
		if c.RunsByPlacement {
			continue
		}
		all++
		if missed := c.missed(); len(missed) > 0 {
			t.Add(fmt.Sprintf("%s %g", c.Cluster, c.Load), strings.Join(missed, "; "))
			continue
		}
		kept++
	}
	t.Title = fmt.Sprintf("**Cells that keep what is promised: %d of %d**", kept, all)
	return t
}

func judgedTable(c *CellSummary) *report.Table {
	t := &report.Table{Title: "**" + c.String() + "**", Header: []string{"policy", "all-reduce, ms", "by the best, %", "completion, s"}}
	sizes := c.judgedSizes()
	best := math.Inf(1)
	for i := range c.Policies {
		best = min(best, c.Policies[i].Fields[fieldAllReduce].Mean)
	}
	for _, k := range sizes {
		if k > 1 {
			t.Header = append(t.Header, fmt.Sprintf("ms of %d", k))
		}
		t.Header = append(t.Header, fmt.Sprintf("wait of %d, s", k))
	}
	t.Header = append(t.Header, "never ran")
	for i := range c.Policies {
		p := &c.Policies[i]
		row := []string{
			p.Policy, p.Fields[fieldAllReduce].format(1, 2), strconv.FormatFloat(100*(p.Fields[fieldAllReduce].Mean/best-1), 'f', 1, 64),
			p.Fields[fieldCompletion].format(1, 0),
		}
		for _, k := range sizes {
			of := func(field string) Estimate { return p.Fields[fmt.Sprintf("judged.bySize.%d.%s", k, field)] }
			if k > 1 {
				row = append(row, of("allReduceMS").format(1, 2))
			}
			row = append(row, of("meanWaitS").format(1, 0))
		}
		t.Add(append(row, p.Fields[fieldUnfinished].format(1, 0))...)
	}
	return t
}
