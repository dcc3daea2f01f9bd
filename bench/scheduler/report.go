// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/nvtopo/nvtopo/bench/internal/report"
)

// key identifies the cells that are repeats of each other.
type key struct {
	nodes             int
	workload, profile string
}

// group is the repeats of one key.
type group struct {
	cells   []*Cell
	figures []map[string]float64 // of each cell, by their names in JSON
}

// groups are all cells, with their keys in the order of rows.
type groups struct {
	order []key
	of    map[key]*group
}

// group groups cells that are repeats of each other, in the order of the options.
func (o *options) group(cells []Cell) (*groups, error) {
	g := &groups{of: map[key]*group{}}
	for i := range cells {
		c := &cells[i]
		k := key{c.Nodes, c.Workload, c.Profile}
		if g.of[k] == nil {
			g.of[k] = &group{}
		}
		f, err := figuresOf(c)
		if err != nil {
			return nil, err
		}
		g.of[k].cells, g.of[k].figures = append(g.of[k].cells, c), append(g.of[k].figures, f)
	}
	for _, nodes := range o.Nodes {
		for _, workload := range o.Workloads {
			for _, profile := range o.Profiles {
				if k := (key{nodes, workload, profile}); g.of[k] != nil { // otherwise measuring ended before
					g.order = append(g.order, k)
				}
			}
		}
	}
	return g, nil
}

// figuresOf returns the numbers of a result by their names in JSON, "outer.inner" for those of a
// field.
func figuresOf(result any) (map[string]float64, error) {
	data, err := json.Marshal(result)
	if err != nil {
		return nil, fmt.Errorf("encode a result: %w", err)
	}
	var fields map[string]any
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil, fmt.Errorf("decode a result: %w", err)
	}
	out := map[string]float64{}
	for name, v := range fields {
		switch v := v.(type) {
		case float64:
			out[name] = v
		case map[string]any:
			for inner, v := range v {
				out[name+"."+inner], _ = v.(float64)
			}
		}
	}
	return out, nil
}

// spread is the distribution of a sample.
type spread struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// spreadOf is all 0 for an empty sample.
func spreadOf(s report.Sample) (out spread) {
	if len(s) > 0 {
		out = spread{P50: s.Quantile(0.5), P99: s.Quantile(0.99), Max: s.Max()}
	}
	return out
}

// column is one figure of a table.
type column struct {
	title    string
	figure   string // its name in JSON
	decimals int
	of       func(report.Sample) float64 // statistic over the repeats; nil: the median
	spread   bool                        // with quartiles
	to       func(key) key               // cells of the same repeat for a ratio with quartiles
	text     func(*groups, key) string   // replaces all of the above
}

// sample returns a figure of each repeat, or its ratio in those that have both.
func (g *groups) sample(k key, figure string, to func(key) key) report.Sample {
	others := map[int]float64{} // by repeat
	if to != nil && g.of[to(k)] != nil {
		other := g.of[to(k)]
		for i, c := range other.cells {
			others[c.Repeat] = other.figures[i][figure]
		}
	}
	var s report.Sample
	if g.of[k] == nil {
		return nil
	}
	for i, c := range g.of[k].cells {
		switch v := g.of[k].figures[i][figure]; {
		case to == nil:
			s = append(s, v)
		case others[c.Repeat] > 0:
			s = append(s, v/others[c.Repeat])
		}
	}
	return s
}

func (g *groups) cell(k key, c *column) string {
	if c.text != nil {
		return c.text(g, k)
	}
	s := g.sample(k, c.figure, c.to)
	switch {
	case c.spread || c.to != nil:
		return s.Spread(c.decimals)
	case c.of != nil && len(s) > 0:
		return report.Number(c.of(s), c.decimals)
	}
	return report.Number(s.Median(), c.decimals)
}

// table returns a table with a row for each key; keep, if not nil, selects keys.
func (g *groups) table(title string, keep func(key) bool, columns []column) *report.Table {
	t := &report.Table{Title: title}
	for i := range columns {
		t.Header = append(t.Header, columns[i].title)
	}
	for _, k := range g.order {
		if keep != nil && !keep(k) {
			continue
		}
		row := make([]string, len(columns))
		for i := range columns {
			row[i] = g.cell(k, &columns[i])
		}
		t.Add(row...)
	}
	return t
}

// rowsTable returns a table with a row for each of some results that are no cells.
func rowsTable[T interface{ label() string }](title string, rows []T, columns []column) (*report.Table, error) {
	t := &report.Table{Title: title}
	for i := range columns {
		t.Header = append(t.Header, columns[i].title)
	}
	for _, r := range rows {
		figures, err := figuresOf(r)
		if err != nil {
			return nil, err
		}
		row := []string{r.label()}
		for _, c := range columns[1:] {
			row = append(row, report.Number(figures[c.figure], c.decimals))
		}
		t.Add(row...)
	}
	return t, nil
}

// total is the sum over the repeats.
func total(s report.Sample) float64 { return s.Mean() * float64(len(s)) }

// toProfile returns the function from a cell's key to that of the same cell of another profile.
func toProfile(name string) func(key) key {
	return func(k key) key { k.profile = name; return k }
}

// toSingles returns the key of the same cell with single pods in place of gangs, or alone in place of
// beside gangs.
func toSingles(k key) key { k.workload = findWorkload(k.workload).singles(); return k }

var (
	label    = column{title: "nodes, workload", text: func(_ *groups, k key) string { return fmt.Sprintf("%d, %s", k.nodes, k.workload) }}
	profiled = column{title: "profile", text: func(_ *groups, k key) string { return k.profile }}
	whole    = column{title: "nodes, workload, profile", text: func(_ *groups, k key) string { return k.String() }}
)

func (k key) String() string { return fmt.Sprintf("%d, %s, %s", k.nodes, k.workload, k.profile) }

// begins returns the first binding of the window, and the number of graphs not read by then.
func begins(g *groups, k key) string {
	missing := 0
	for _, c := range g.of[k].cells {
		if c.WindowFrom > 0 && !findProfile(c.Profile).stock {
			missing = max(missing, c.Nodes-c.GraphsRead)
		}
	}
	first := g.of[k].cells[0]
	text := fmt.Sprintf("binding %d of %d", first.WindowFrom+1, first.Pods)
	if missing > 0 {
		text += ", " + strconv.Itoa(missing) + " graphs not read"
	}
	return text
}

// gpuWrites returns the writes per pod of a workload with GPUs.
func gpuWrites(g *groups, k key) string {
	if !findWorkload(k.workload).gpus() {
		return "–"
	}
	return report.Number(g.sample(k, "writesPerPod", nil).Median(), 2)
}

// serviceTables returns one table of everything, those of hostile nodes and of gangs where present,
// and one for each workload and size.
func (o *options) serviceTables(g *groups) []*report.Table {
	out := []*report.Table{g.table("Summary: all workloads and profiles", nil, []column{
		label, profiled,
		{title: "window begins", text: begins},
		{title: "pods/s", figure: "podsPerSecond"},
		{title: "ratio to stock (quartiles)", figure: "podsPerSecond", decimals: 2, to: toProfile(profileStock)},
		{title: "scheduler CPU ms/pod", figure: "schedulerCPUMsPerPod", decimals: 2},
		{title: "API server CPU ms/pod", figure: "controlPlaneCPUMsPerPod", decimals: 2},
		{title: "peak MiB", figure: "schedulerPeakMiB"},
		{title: "peak to stock's", figure: "schedulerPeakMiB", decimals: 2, to: toProfile(profileStock)},
		{title: "writes/GPU pod", text: gpuWrites},
	})}
	if o.hostile() {
		title := fmt.Sprintf("With %d hostile nodes, which want to publish %g objects a second, and %g renewals a second by honest exporters", o.Hostile, o.Writes, o.Renewals)
		out = append(out, g.table(title, nil, []column{
			label, profiled,
			{title: "published/s", figure: "hostileWritesPerSecond", decimals: 1},
			{title: "pods/s", figure: "podsPerSecond"},
			{title: "ratio to " + profileBinding, figure: "podsPerSecond", decimals: 2, to: toProfile(profileBinding)},
			{title: "scheduler CPU ms/pod", figure: "schedulerCPUMsPerPod", decimals: 2},
			{title: "API server CPU ms/pod", figure: "controlPlaneCPUMsPerPod", decimals: 2},
			{title: "idle: scheduler ms/s", figure: "holdCPUMsPerSecond", decimals: 1},
			{title: "API server ms/s", figure: "holdControlPlaneCPUMsPerSecond"},
			{title: "load ms/s", figure: "loadCPUMsPerSecond"},
			{title: "live heap MiB", figure: "liveHeapMiB"},
			{title: "peak MiB", figure: "schedulerPeakMiB"},
			{title: "renewal p50 ms", figure: "renewalP50Ms", decimals: 1},
			{title: "p99 ms", figure: "renewalP99Ms", decimals: 1},
			{title: "p99 to " + profileBinding, figure: "renewalP99Ms", decimals: 2, to: toProfile(profileBinding)},
		}))
	}
	gangs := g.table("Gangs beside single pods of the same shape", func(k key) bool { return toSingles(k).workload != "" }, []column{
		label, profiled,
		{title: "pods/s", figure: "podsPerSecond"},
		{title: "to singles' (quartiles)", figure: "podsPerSecond", decimals: 2, to: toSingles},
		{title: "CPU of both ms/pod", figure: "bothCPUMsPerPod", decimals: 2},
		{title: "to singles' (quartiles)", figure: "bothCPUMsPerPod", decimals: 2, to: toSingles},
		{title: "scheduler CPU ms/pod", figure: "schedulerCPUMsPerPod", decimals: 2},
		{title: "plans", figure: "plans"},
		{title: "plan p50 ms", figure: "planP50Ms", decimals: 2},
		{title: "p99 ms", figure: "planP99Ms", decimals: 2},
	})
	if len(gangs.Rows) > 0 {
		out = append(out, gangs)
	}
	last := key{}
	for _, k := range g.order {
		if k.profile = ""; k == last {
			continue
		}
		last = k
		out = append(out, g.workloadTable(k))
	}
	return out
}

// workloadTable returns the latencies and counts of one workload and size.
func (g *groups) workloadTable(of key) *report.Table {
	var first *group
	t := g.table("", func(k key) bool {
		same := k.nodes == of.nodes && k.workload == of.workload
		if same && first == nil {
			first = g.of[k]
		}
		return same
	}, []column{
		profiled,
		{title: "pods/s (quartiles)", figure: "podsPerSecond", spread: true},
		{title: "ratio to stock (quartiles)", figure: "podsPerSecond", decimals: 2, to: toProfile(profileStock)},
		{title: "attempt p50 ms", figure: "attemptP50Ms", decimals: 1},
		{title: "p99 ms", figure: "attemptP99Ms", decimals: 1},
		{title: "scheduler CPU ms/pod", figure: "schedulerCPUMsPerPod", decimals: 2},
		{title: "API server CPU ms/pod", figure: "controlPlaneCPUMsPerPod", decimals: 2},
		{title: "writes/pod", figure: "writesPerPod", decimals: 2},
		{title: "refused/pod", figure: "refusedPerPod", decimals: 2},
		{title: "peak MiB", figure: "schedulerPeakMiB"},
		{title: "live heap MiB", figure: "liveHeapMiB"},
		{title: "hint_used", figure: "hintUsed"},
		{title: "attempts in vain", figure: "unscheduledAttempts"},
	})
	t.Title = fmt.Sprintf("%d nodes, %d pods: %s (%d repeats)", of.nodes, first.cells[0].Pods, findWorkload(of.workload).title, len(first.cells))
	return t
}

// cycleTables returns times and counts, and the shares of our packages.
func (o *options) cycleTables(g *groups) []*report.Table {
	mean := func(k key, figure string) float64 { return g.sample(k, figure, nil).Mean() }
	baseline := toProfile(o.Profiles[0])
	return []*report.Table{
		g.table("Scheduling cycle: µs per pod and repeat, median (quartiles)", nil, []column{
			whole,
			{title: "pods", figure: "pods"},
			{title: "wall µs", figure: "wallMicrosPerPod", spread: true},
			{title: "ratio", figure: "wallMicrosPerPod", decimals: 3, to: baseline},
			{title: "p50 µs", figure: "p50Micros"},
			{title: "p99 µs", figure: "p99Micros"},
			{title: "CPU µs", figure: "cpuMicrosPerPod", spread: true},
			{title: "allocs", figure: "allocationsPerPod"},
			{title: "KiB", figure: "kibPerPod", decimals: 1},
			{title: "filtered", figure: "nodesFilteredPerPod", decimals: 1, of: report.Sample.Mean},
			{title: "feasible", figure: "nodesFeasiblePerPod", decimals: 1, of: report.Sample.Mean},
			{title: "hints", figure: "hintsUsed", of: total},
			{title: "retries", figure: "cyclesAfterPostFilter", of: total},
		}),
		g.table("Our packages' CPU time, with all that they call, from the CPU profiles of all repeats", nil, []column{
			whole,
			{title: "samples", figure: "samples", of: total},
			{title: "cycle CPU µs/pod", figure: "cycleCPUMicrosPerPod", of: report.Sample.Mean},
			{title: "ours µs/pod", figure: "oursMicrosPerPod", decimals: 2, of: report.Sample.Mean},
			{title: "% of own cycle", text: func(_ *groups, k key) string {
				return report.Number(100*mean(k, "oursMicrosPerPod")/mean(k, "cycleCPUMicrosPerPod"), 2)
			}},
			{title: "% of the baseline's cycle", text: func(_ *groups, k key) string {
				return report.Number(100*mean(k, "oursMicrosPerPod")/mean(baseline(k), "cycleCPUMicrosPerPod"), 2)
			}},
		}),
	}
}
