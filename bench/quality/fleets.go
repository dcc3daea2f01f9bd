// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/nvtopo/nvtopo/bench/internal/report"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/nodeindex"
	"github.com/nvtopo/nvtopo/pkg/sim"
	"github.com/nvtopo/nvtopo/pkg/sim/judge"
)

// fleets are clusters of several kinds of machine, and two of one kind beside them. Machines are dealt
// out in turn, so a name that comes twice has twice the nodes.
func fleets() []kind {
	const hopper, ampere, volta, pcie = "hgx-h200", "dgx-a100", "dgx1-v100", "l40s-8"
	all := map[string][]string{
		"gb200+l40s":      {"gb200-tray", "gb200-tray", pcie}, // fast machines of 4 beside slow ones of 8
		"dgx2+h200+l40s":  {"dgx2", hopper, pcie},
		"a100+v100":       {ampere, volta},
		"h200+l40s":       {hopper, pcie},
		"four-kinds":      {hopper, ampere, pcie, volta},
		"h200-nvl+a100":   {"h200-nvl-8", "hgx-a100-8"},
		"a100-4+a100-8":   {"hgx-a100-4", "hgx-a100-8"},
		"a100-pcie+l40s":  {"a100-pcie-4-bridged", pcie},
		"only-h200":       {hopper},
		"only-dgx1-v100":  {volta},
		"b200+h100+a6000": {"hgx-b200", "dgx-h100", "a6000-8-bridged"},
	}
	var out []kind
	for _, name := range slices.Sorted(maps.Keys(all)) {
		out = append(out, kind{name: name, title: name + " (" + strings.Join(all[name], ", ") + ")", machines: all[name]})
	}
	return out
}

// judgedLoads are from a cluster that is half empty to one in which queues grow.
func judgedLoads() []float64 { return []float64{0.55, 0.70, 0.85, 0.95, 0.97} }

// judgedPolicies are ours and rules for the node with the best GPUs there, so that the node alone makes
// the difference, and what the default scheduler does beside NVIDIA's device plugin. That plugin walks
// all partitions of a machine; where it has 16 GPUs the lowest are taken instead.
func judgedPolicies(k *kind) ([]variant, error) {
	stock := "spread+best-effort"
	for _, name := range k.machines {
		m, err := machine.Lookup(name)
		if err != nil {
			return nil, fmt.Errorf("cluster %s: %w", k.name, err)
		}
		g, err := m.Graph()
		if err != nil {
			return nil, fmt.Errorf("cluster %s: %w", k.name, err)
		}
		if g.Len() > 10 {
			stock = "spread+lowest"
		}
	}
	var out []variant
	for _, name := range []string{sim.Ours, "reserve+exact", "binpack+exact", "spread+exact", "fgd+exact", stock} {
		out = append(out, variant{name: name, policy: name})
	}
	return append(out, otherOrders()...), nil
}

// otherOrders are ours with other arguments: machines are left to larger pods sooner, later or never,
// and single GPUs go where they take the least share of a machine, or to the slowest GPUs.
func otherOrders() []variant {
	of := func(name string, change func(*nodeindex.Order)) variant {
		o := nodeindex.DefaultOrder()
		change(&o)
		return variant{name: "ours:" + name, policy: sim.Ours, order: &o}
	}
	return []variant{
		of("reserve=0.5", func(o *nodeindex.Order) { o.Reserve = 0.5 }),
		of("reserve=0.9", func(o *nodeindex.Order) { o.Reserve = 0.9 }),
		of("reserve=1", func(o *nodeindex.Order) { o.Reserve = 1 }),
		of("singles=least-lost", func(o *nodeindex.Order) { o.Singles = nodeindex.SinglesLeastLost }),
		of("singles=slow-gpus", func(o *nodeindex.Order) { o.Singles = nodeindex.SinglesSlowGPUs }),
	}
}

// judgedSuite makes the tasks in which placements are judged, in the order of the report. All-reduces
// and waits are compared where all policies have the same work to do at the same load. How much sooner
// jobs end says the cell beside it, in which they run as fast as their GPUs and links let them.
func judgedSuite(o *options) ([]task, error) {
	var out []task
	for _, k := range o.kinds {
		nodes, err := k.nodes(o.nodes)
		if err != nil {
			return nil, err
		}
		variants, err := judgedPolicies(&k)
		if err != nil {
			return nil, err
		}
		src := synthetic(traceMix, o.pods)
		for _, load := range o.loads {
			for _, byPlacement := range []bool{false, true} {
				out = append(out, task{
					Cell:  Cell{Cluster: k.name, Trace: src.name, Nodes: o.nodes, Load: load, RunsByPlacement: byPlacement},
					nodes: nodes, source: src, variants: variants, message: judge.DefaultBytes,
				})
			}
		}
	}
	return out, nil
}

// fieldAllReduce decides between policies; see judge.Verdict.
const (
	fieldAllReduce   = "judged.allReduceMS"
	fieldCompletion  = "judged.completionS"
	fieldLargestWait = "judged.largestWaitS"
	fieldUnfinished  = "unfinished"
)

// largestError is what half of the 95 % interval of the deciding mean may be of it.
const largestError = 0.025

// writeJudged prints a table for each cell, and which means are not sure enough.
func writeJudged(w io.Writer, r *Result) error {
	var unsure []string
	for i := range r.Cells {
		c := &r.Cells[i]
		if err := judgedTable(c).Write(w); err != nil {
			return err
		}
		for _, p := range c.Policies {
			if e := p.Fields[fieldAllReduce]; !(e.CI95 <= largestError*e.Mean) {
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

func judgedTable(c *CellSummary) *report.Table {
	t := &report.Table{Title: "**" + c.String() + "**", Header: []string{"policy", "all-reduce, ms", "by the best, %", "completion, s"}}
	var sizes []int
	best := math.Inf(1)
	for i := range c.Policies {
		best = min(best, c.Policies[i].Fields[fieldAllReduce].Mean)
	}
	for field := range c.Policies[0].Fields {
		if size, ok := strings.CutSuffix(strings.TrimPrefix(field, "judged.bySize."), ".pods"); ok {
			if k, err := strconv.Atoi(size); err == nil {
				sizes = append(sizes, k)
			}
		}
	}
	slices.Sort(sizes)
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
