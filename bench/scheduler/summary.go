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
	rows := newResult(o, cells).Summary
	if err := summaryTable(rows).Write(w); err != nil {
		return err // says what it was about
	}
	if o.hostile() {
		if err := hostileTable(o, rows).Write(w); err != nil {
			return err // says what it was about
		}
	}
	if gangs := gangTable(cells); len(gangs.Rows) > 0 {
		if err := gangs.Write(w); err != nil {
			return err // says what it was about
		}
	}
	for _, nodes := range o.Nodes {
		for _, name := range o.Workloads {
			of := cellsOf(cells, nodes, name)
			if len(of) == 0 {
				continue // measuring ended before
			}
			if err := tableOf(o, of).Write(w); err != nil {
				return err // says what it was about
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

// hostileTable has what hostile nodes cost the others.
func hostileTable(o *options, rows []Summary) *report.Table {
	t := &report.Table{
		Title: fmt.Sprintf("With %d hostile nodes, which want to publish %g objects a second, and %g renewals a second by honest exporters", o.Hostile, o.Writes, o.Renewals),
		Header: []string{
			"nodes, workload", "profile", "published/s", "pods/s", "ratio to " + profileBinding, "scheduler CPU ms/pod", "API server CPU ms/pod",
			"idle: scheduler ms/s", "API server ms/s", "load ms/s", "live heap MiB", "peak MiB", "renewal p50 ms", "p99 ms", "p99 to " + profileBinding,
		},
	}
	for i := range rows {
		r := &rows[i]
		t.Add(fmt.Sprintf("%d, %s", r.Nodes, r.Workload), r.Profile, number(r.HostileWrites, 1), number(r.PodsPerSecond.Median, 0), ratioText(r.RatioToHonest),
			number(r.SchedulerCPUMs, 2), number(r.ControlPlaneCPUMs, 2), number(r.HoldCPU, 1), number(r.HoldControlPlane, 0), number(r.LoadCPU, 0), number(r.LiveHeapMiB, 0),
			number(r.SchedulerPeakMiB, 0), number(r.RenewalP50Ms, 1), number(r.RenewalP99Ms, 1), ratioText(r.RenewalsToHonest))
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
