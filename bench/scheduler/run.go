// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"slices"
)

// plan is a cell to measure.
type plan struct {
	nodes    int
	workload *workload
	profile  string
	repeat   int
	pods     int
}

// bench measures cells on a cluster of one size.
type bench interface {
	measure(ctx context.Context, p *plan) (*Cell, error)
}

// runCells measures every workload in each repeat, with its profiles one after the other: cells
// to compare are measured close together, since the machine's speed may change within minutes.
// The order of profiles rotates, so that no profile always follows the same one. After an error
// the cells measured so far are returned with it.
func runCells(ctx context.Context, o *options, nodes int, b bench, progress io.Writer) ([]Cell, error) {
	var cells []Cell
	for repeat := range o.Repeats {
		for _, p := range o.plans(nodes, progress) {
			for _, profile := range rotated(o.Profiles, repeat) {
				p.profile, p.repeat = profile, repeat
				cell, err := b.measure(ctx, &p)
				if err != nil {
					return cells, fmt.Errorf("workload %s, profile %s, repeat %d: %w", p.workload.name, profile, repeat+1, err)
				}
				cells = append(cells, *cell)
				fmt.Fprintf(progress, "%d nodes, %s, repeat %d/%d, %s: %d pods, %s\n",
					nodes, p.workload.name, repeat+1, o.Repeats, profile, cell.Pods, cell.pace())
			}
		}
	}
	return cells, nil
}

// pace is a cell's main figure.
func (c *Cell) pace() string {
	if c.Cycle != nil {
		return fmt.Sprintf("%.0f µs a pod", c.Wall)
	}
	return fmt.Sprintf("%.0f pods/s, cell %.1f s", c.PodsPerSecond, c.ElapsedSeconds)
}

// plans lists the workloads that the cluster has room for, with their pods.
func (o *options) plans(nodes int, progress io.Writer) []plan {
	wanted, room := o.Pods, nodes
	if o.cycle { // clusters of all sizes end equally full
		wanted = max(1, o.Pods*nodes/slices.Max(o.Nodes))
	}
	if o.hostile() {
		room -= o.Hostile
	}
	var out []plan
	for _, name := range o.Workloads {
		w := findWorkload(name)
		pods := w.fitting(wanted, room)
		if pods == 0 {
			fmt.Fprintf(progress, "%d nodes, %s: left out, there is no room for one gang\n", nodes, w.name)
			continue
		}
		out = append(out, plan{nodes: nodes, workload: w, pods: pods})
	}
	return out
}

// rotated returns the list rotated by n places.
func rotated(list []string, n int) []string {
	n %= len(list)
	return slices.Concat(list[n:], list[:n])
}
