// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/nvtopo/nvtopo/bench/internal/report"
)

// tables is the result as people read it.
func (r *result) tables() []*report.Table {
	out := []*report.Table{r.cycleTable(), r.shareTable(), r.pointTable()}
	for _, s := range r.Cycles {
		if len(s.Usage.Top) > 0 {
			out = append(out, s.topTable())
		}
	}
	if len(r.Latency) > 0 {
		out = append(out, r.latencyTable())
	}
	if len(r.Plans) > 0 {
		out = append(out, r.planTable())
	}
	if len(r.Waiting) > 0 {
		out = append(out, r.waitingTable())
	}
	return out
}

func (r *result) cycleTable() *report.Table {
	t := &report.Table{
		Title: "Scheduling cycle: µs per pod and repeat, median [quartiles]",
		Header: []string{
			"nodes, workload, profile", "pods", "wall µs", "ratio", "p50 µs", "p99 µs", "CPU µs", "allocs", "KiB", "filtered", "feasible", "hints", "retries",
		},
	}
	for _, s := range r.Cycles {
		t.Add(s.label(), strconv.Itoa(s.Pods), spread(s.Wall, "%.0f"), spread(s.Ratio, "%.3f"), fmt.Sprintf("%.0f", s.P50.Median()),
			fmt.Sprintf("%.0f", s.P99.Median()), spread(s.CPU, "%.0f"), fmt.Sprintf("%.0f", s.Mallocs.Median()),
			fmt.Sprintf("%.1f", s.Bytes.Median()/1024), fmt.Sprintf("%.1f", s.Evaluated), fmt.Sprintf("%.1f", s.Feasible),
			strconv.Itoa(s.Hints), strconv.Itoa(s.Retries))
	}
	return t
}

func (r *result) shareTable() *report.Table {
	t := &report.Table{
		Title:  "Our packages' CPU time, with all that they call, from the CPU profiles of all repeats",
		Header: []string{"nodes, workload, profile", "samples", "cycle CPU µs/pod", "ours µs/pod", "% of own cycle", "% of the baseline's cycle"},
	}
	for _, s := range r.Cycles {
		t.Add(s.label(), strconv.FormatInt(s.Usage.Samples, 10), fmt.Sprintf("%.0f", s.perPod(s.Usage.Cycle)), fmt.Sprintf("%.2f", s.OursMicros),
			fmt.Sprintf("%.2f", s.OfOwn), fmt.Sprintf("%.2f", s.OfBaseline))
	}
	return t
}

func (r *result) pointTable() *report.Table {
	points := append(append([]string{}, extensionPoints...), otherPoint)
	t := &report.Table{Title: "The same by extension point, µs of CPU per pod", Header: append([]string{"nodes, workload, profile"}, points...)}
	for _, s := range r.Cycles {
		if s.Usage.Ours == 0 {
			continue
		}
		row := []string{s.label()}
		for _, p := range points {
			row = append(row, fmt.Sprintf("%.2f", s.perPod(s.Usage.Points[p])))
		}
		t.Add(row...)
	}
	return t
}

func (s *series) topTable() *report.Table {
	t := &report.Table{
		Title:  "What our time is spent in, " + s.label() + ": % of it",
		Header: []string{"function", "own", "with callees"},
	}
	for _, f := range s.Usage.Top {
		t.Add(strings.TrimPrefix(f.Name, ours), fmt.Sprintf("%.1f", f.Flat), fmt.Sprintf("%.1f", f.Cum))
	}
	return t
}

func (s *series) label() string { return fmt.Sprintf("%d, %s, %s", s.Nodes, s.Workload, s.Profile) }

// spread prints a median and its quartiles.
func spread(s report.Sample, format string) string {
	lo, hi := s.Quartiles()
	return fmt.Sprintf(format+" ["+format+", "+format+"]", s.Median(), lo, hi)
}
