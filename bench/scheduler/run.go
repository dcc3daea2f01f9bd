// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/nvtopo/nvtopo/bench/internal/fleet"
	"github.com/nvtopo/nvtopo/bench/internal/report"
	"github.com/nvtopo/nvtopo/internal/devcluster"
)

const protobuf = "application/vnd.kubernetes.protobuf"

// run measures all cells. After an error the cells measured so far are returned with it.
func run(ctx context.Context, o *options, progress io.Writer) ([]Cell, error) {
	var cells []Cell
	for _, nodes := range o.Nodes {
		got, err := runSize(ctx, o, nodes, progress)
		cells = append(cells, got...)
		if err != nil {
			return cells, fmt.Errorf("%d nodes: %w", nodes, err)
		}
	}
	return cells, nil
}

// runSize measures all cells of one size on one control plane.
func runSize(ctx context.Context, o *options, nodes int, progress io.Writer) (cells []Cell, err error) {
	start, log := time.Now(), &devcluster.Tail{File: o.log}
	var args []string
	if o.hostile() {
		args = slices.Clone(realLimits)
	}
	if o.Profile {
		args = append(args, "--profiling=true")
	}
	cp, err := startControlPlane(ctx, log, args...)
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, log)
	}
	defer func() {
		if err != nil && ctx.Err() == nil {
			err = fmt.Errorf("%w\nlast words of the control plane:\n%s", err, log)
		}
		err = errors.Join(err, cp.stop()) //nolint:contextcheck // what was started has to end although ctx may be over
	}()
	c, err := newCluster(ctx, cp, nodes, o.Racks)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(progress, "%d nodes: control plane and nodes made in %.1f s\n", nodes, since(start))
	return c.runCells(ctx, o, progress)
}

func newCluster(ctx context.Context, cp *controlPlane, nodes, racks int) (*cluster, error) {
	config := cp.RESTConfig()
	dyn, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	config.ContentType, config.AcceptContentTypes = protobuf, protobuf+",application/json"
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	if err := makeUrgent(ctx, kube); err != nil {
		return nil, err
	}
	if racks > 0 {
		if err := makeFabric(ctx, dyn); err != nil {
			return nil, err
		}
	}
	of := fleet.Options{Devices: func(i int) v1.ResourceList { return v1.ResourceList{ownResource(i): resource.MustParse("1")} }}
	if racks > 0 {
		of.Labels = func(i int) map[string]string {
			return map[string]string{rackLabel: fmt.Sprintf("rack-%03d", i*racks/nodes)}
		}
	}
	return &cluster{controlPlane: cp, kube: kube, dyn: dyn, nodes: nodes}, fleet.Add(ctx, kube, dyn, nodes, of)
}

// runCells measures every workload in each repeat, and every profile of it one after the other:
// what is compared is measured close together, since the machine's pace may change in minutes.
// The order of profiles turns, so that no profile always follows the same one.
func (c *cluster) runCells(ctx context.Context, o *options, progress io.Writer) ([]Cell, error) {
	plans := c.plans(o, progress)
	var cells []Cell
	for repeat := range o.Repeats {
		for _, p := range plans {
			for _, profile := range rotated(o.Profiles, repeat) {
				p.profile, p.repeat = profile, repeat
				cell, err := c.cell(ctx, o, &p)
				if err != nil {
					return cells, fmt.Errorf("workload %s, profile %s, repeat %d: %w", p.workload.name, profile, repeat+1, err)
				}
				cells = append(cells, *cell)
				fmt.Fprintf(progress, "%d nodes, %s, repeat %d/%d, %s: %.0f pods/s over %d pods, cell %.1f s\n",
					c.nodes, p.workload.name, repeat+1, o.Repeats, profile, cell.PodsPerSecond, cell.Pods, cell.ElapsedSeconds)
			}
		}
	}
	if !o.Profile {
		return cells, nil
	}
	for _, p := range plans {
		for _, profile := range o.Profiles {
			p.profile, p.repeat, p.profileWindow = profile, o.Repeats, length(cells, p.workload.name, profile)
			p.profiles = filepath.Join(o.out, fmt.Sprintf("bench-scheduler-%d-%s-%s", c.nodes, p.workload.name, profile))
			if _, err := c.cell(ctx, o, &p); err != nil {
				return cells, fmt.Errorf("profiles of workload %s, %s: %w", p.workload.name, profile, err)
			}
			fmt.Fprintf(progress, "stored %s.{cpu,api-server.cpu,heap}.pprof\n", p.profiles)
		}
	}
	return cells, nil
}

// plans lists the workloads that there is room for, with their pods.
func (c *cluster) plans(o *options, progress io.Writer) []plan {
	room := c.nodes
	if o.hostile() {
		room -= o.Hostile
	}
	var out []plan
	for _, name := range o.Workloads {
		w := findWorkload(name)
		pods := w.fitting(o.Pods, room)
		if pods == 0 {
			fmt.Fprintf(progress, "%d nodes, %s: left out, there is no room for one gang\n", c.nodes, w.name)
			continue
		}
		out = append(out, plan{workload: w, pods: pods})
	}
	return out
}

// rotated is the list begun n places later.
func rotated(list []string, n int) []string {
	n %= len(list)
	return slices.Concat(list[n:], list[:n])
}

// length is the median time of a workload's cells of a profile, from the scheduler's readiness to the
// last binding.
func length(cells []Cell, workload, profile string) time.Duration {
	var s report.Sample
	for i := range cells {
		if cells[i].Workload == workload && cells[i].Profile == profile {
			s = append(s, cells[i].WindowSeconds)
		}
	}
	return time.Duration(s.Median() * float64(time.Second))
}
