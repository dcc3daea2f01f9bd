// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strconv"

	"github.com/nvtopo/nvtopo/bench/internal/report"
)

// printTables prints one table of everything, and then one for each workload and size.
func printTables(w io.Writer, o *options, cells []Cell) error {
	if err := summaryTable(newResult(o, cells).Summary).Write(w); err != nil {
		return err //nolint:wrapcheck // says what it was about
	}
	for _, nodes := range o.Nodes {
		for _, name := range o.Workloads {
			of := cellsOf(cells, nodes, name)
			if len(of) == 0 {
				continue // measuring ended before
			}
			if err := tableOf(o, of).Write(w); err != nil {
				return err //nolint:wrapcheck // says what it was about
			}
		}
	}
	return nil
}

// summaryTable has a row for each profile of each workload and size.
func summaryTable(rows []Summary) *report.Table {
	t := &report.Table{Title: "Summary: all workloads and profiles", Header: []string{
		"nodes, workload", "profile", "window begins", "pods/s", "ratio to stock (quartiles)", "scheduler CPU ms/pod",
		"API server CPU ms/pod", "peak MiB", "peak to stock's", "writes/GPU pod",
	}}
	for i := range rows {
		r := &rows[i]
		t.Add(fmt.Sprintf("%d, %s", r.Nodes, r.Workload), r.Profile, r.begins(), number(r.PodsPerSecond.Median, 0), ratioText(r.RatioToStock),
			number(r.SchedulerCPUMs, 2), number(r.ControlPlaneCPUMs, 2), number(r.SchedulerPeakMiB, 0), ratioText(r.PeakToStock), r.gpuWrites())
	}
	return t
}

// begins says which binding the window begins with, and what had not been read by then.
func (r *Summary) begins() string {
	text := fmt.Sprintf("binding %d of %d", r.WindowFrom+1, r.Pods)
	if r.GraphsMissing > 0 {
		text += ", " + strconv.Itoa(r.GraphsMissing) + " graphs not read"
	}
	return text
}

func (r *Summary) gpuWrites() string {
	if !findWorkload(r.Workload).gpus() {
		return "–"
	}
	return number(r.WritesPerPod, 2)
}

func ratioText(s *Spread) string {
	if s == nil {
		return "–"
	}
	return spreadText(*s, 2)
}
