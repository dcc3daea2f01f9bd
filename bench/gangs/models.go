// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/nvtopo/nvtopo/bench/internal/report"
	"github.com/nvtopo/nvtopo/internal/lab/sim"
	"github.com/nvtopo/nvtopo/internal/lab/sim/judge"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
)

// The clusters of several models: racksOfModel racks of eight nodes for each model, below two
// spines.
const (
	racksOfModel = 16
	nodesOfRack  = 8
	modelJobs    = 30_000
	modelSeeds   = 8
)

// network returns the links of their fabrics, which the planner and the judge use: eight ports of
// 200 Gbit/s a node, half of them between racks and a quarter between spines.
func network() (levels []fabric.Level, root fabric.Link) {
	return []fabric.Level{
		{Name: levelSpine, Link: fabric.Link{Bandwidth: 100_000_000, Latency: 10_000, Hops: 3}},
		{Name: levelRack, Link: fabric.Link{Bandwidth: 200_000_000, Latency: 5_000, Hops: 1}},
	}, fabric.Link{Bandwidth: 50_000_000, Latency: 15_000, Hops: 5}
}

// modelClusters returns fabrics of two and of four models.
func modelClusters() ([]*cluster, error) {
	var out []*cluster
	for _, c := range []struct {
		name     string
		machines []string
	}{
		{"two-models", []string{"hgx-h200", "l40s-8"}},
		{"four-models", []string{"hgx-h200", "dgx-a100", "l40s-8", "dgx1-v100"}},
	} {
		n := racksOfModel * len(c.machines)
		levels, root := network()
		title := fmt.Sprintf("%d nodes, %d racks of %d, every fourth with all models, 2 spines", n*nodesOfRack, n, nodesOfRack)
		made, err := newCluster(c.name, title, hostsOfModels(c.machines, n), levels, root)
		if err != nil {
			return nil, err
		}
		out = append(out, made)
	}
	return out, nil
}

// hostsOfModels distributes machines over racks: each rack has one kind, in turn, except that every
// fourth has all of them in turn.
func hostsOfModels(machines []string, racks int) []host {
	var all []rack
	next, mixed := map[string]int{}, map[string]bool{} // by rack: the machine of its next host
	for i := range racks {
		all = append(all, rack{i / len(machines) % 2, i, nodesOfRack})
		name := fmt.Sprint("rack-", i)
		next[name], mixed[name] = i%len(machines), i/len(machines)%4 == 3
	}
	out := shuffled(all)
	for i := range out {
		h := &out[i]
		h.machine = machines[next[h.rack]]
		if mixed[h.rack] {
			next[h.rack] = (next[h.rack] + 1) % len(machines)
		}
	}
	return out
}

// modelSuite returns the tasks in which gangs are judged on several models.
func modelSuite(o *options) ([]task, error) {
	clusters, err := modelClusters()
	if err != nil {
		return nil, err
	}
	variants := []Variant{ours(0), ours(300), {kueue, 0}, {"koordinator", 0}, {"volcano", 0}, {firstFit, 0}}
	var out []task
	for _, on := range clusters {
		for _, m := range o.chosen() {
			for _, load := range o.loads {
				out = append(out, task{
					Cell: Cell{Cluster: on.name, Title: on.title, Machine: on.machine, Mix: m.name, Load: load},
					on:   on, mix: m, jobs: o.jobs, variants: variants, message: judge.DefaultBytes,
				})
			}
		}
	}
	return out, nil
}

// slowerBy is the share by which the time of an all-reduce may exceed the best policy's.
const slowerBy = 0.05

// modelBars compares a judged cell with its promises. Times are compared with those of the policies
// under which all jobs run; ours with a topology wait timeout is not such a policy.
func modelBars(c *CellSummary) []Bar {
	k := &checker{cell: c.Cluster + ", " + c.String()}
	best, mine := math.Inf(1), math.NaN()
	for i := range c.Policies {
		p := &c.Policies[i]
		if p.Policy == sim.Ours {
			k.none(p.String()+": "+promiseOneModel, float64(p.MixedModels))
			k.none(p.String()+": "+promiseCarriedOut, float64(p.NotCarriedOut))
			k.none(p.String()+": "+promiseAllRan, float64(p.Unfinished))
		}
		if p.Variant == ours(0) {
			mine = p.AllReduceMS
		}
		if p.Unfinished == 0 && (p.Variant == ours(0) || p.Policy != sim.Ours) {
			best = min(best, p.AllReduceMS)
		}
	}
	k.atMost("all-reduce of gangs by the best policy's", 1+slowerBy, mine/best, "")
	return k.bars
}

// judgedOf is the judge's results for gangs, over the seeds.
type judgedOf struct {
	time    report.Sample         // ms of an all-reduce
	waits   map[int]report.Sample // s, by the GPUs of a gang
	mixed   int
	ofGangs int
}

func (p *PolicySummary) judged() judgedOf {
	out := judgedOf{waits: map[int]report.Sample{}}
	for i := range p.Seeds {
		j := p.Seeds[i].Judged
		if j == nil || j.Gangs == nil {
			continue
		}
		out.time = append(out.time, j.Gangs.AllReduceMS)
		out.mixed += j.Gangs.MixedModels
		out.ofGangs += j.Gangs.Gangs
		for n, s := range j.Gangs.BySize {
			out.waits[n] = append(out.waits[n], s.MeanWaitS)
		}
	}
	return out
}

// writeModels prints a table for each cluster of several models, and the bars.
func writeModels(w io.Writer, r *Result) error {
	fmt.Fprintf(w, "Mean and 95 %% confidence interval of %d seeds; %d jobs a trace, the first %g %% not counted.\n\n", len(r.Seeds), r.Jobs, 100*warmUp)
	if r.Few {
		fmt.Fprintf(w, "**Fewer or other jobs, cells or seeds than the bars are set for: what is kept or missed below means little.**\n\n")
	}
	for i := range r.Cells {
		if err := modelTable(&r.Cells[i]).Write(w); err != nil {
			return err
		}
	}
	if err := barTable(r.Bars).Write(w); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "%s\n\n", leftOut)
	return err
}

func modelTable(c *CellSummary) *report.Table {
	t := &report.Table{
		Title:  fmt.Sprintf("**%s (%s), %s: %s**", c.Cluster, c.Machine, c.String(), c.Title),
		Header: []string{"policy", "all-reduce, ms", "gangs", "on several models"},
	}
	var sizes []int
	for i := range c.Policies {
		j := c.Policies[i].judged()
		if i == 0 {
			sizes = slices.Sorted(maps.Keys(j.waits))
			for _, n := range sizes {
				t.Header = append(t.Header, fmt.Sprintf("wait of %d GPUs, s", n))
			}
		}
		row := []string{c.Policies[i].String(), decimals(j.time.Mean(), 1) + " ± " + decimals(j.time.CI95(), 1), strconv.Itoa(j.ofGangs), strconv.Itoa(j.mixed)}
		for _, n := range sizes {
			row = append(row, decimals(j.waits[n].Mean(), 0))
		}
		t.Add(row...)
	}
	return t
}
