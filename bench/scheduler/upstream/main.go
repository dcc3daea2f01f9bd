// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/nvtopo/nvtopo/bench/internal/report"
)

const (
	resultFile = "bench-scheduler-upstream.json"
	// throughput is upstream's name of the pods bound per second, a mean over the seconds of a workload.
	throughput = "SchedulingThroughput"
)

// profiles are those of workloads.yaml.
var profiles = []string{stock, ours}

const (
	stock = "stock" // kube-scheduler's default profile
	ours  = "ours"  // the shipped one
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench-upstream:", err)
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	Cases   []string `json:"cases"`
	Sizes   []string `json:"sizes"`
	Repeats int      `json:"repeats"`
	program string
	etcd    string
	out     string
}

// Cell is the result of upstream's benchmark for one workload and profile, once.
type Cell struct {
	Case          string  `json:"case"`
	Size          string  `json:"size"`
	Profile       string  `json:"profile"`
	Repeat        int     `json:"repeat"`
	PodsPerSecond float64 `json:"podsPerSecond,omitempty"` // 0: the workload ended within two seconds, and upstream reports none
}

func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{}
	fs := flag.NewFlagSet("upstream", flag.ContinueOnError)
	fs.SetOutput(stderr)
	cases := fs.String("cases", "SchedulingBasic,SchedulingGPUs", "workloads of workloads.yaml, with commas")
	sizes := fs.String("sizes", "1000Nodes", "their sizes")
	fs.IntVar(&o.Repeats, "repeats", 3, "runs of each workload and profile, in turn")
	fs.StringVar(&o.program, "program", "../bin/bench-upstream.test", "this folder's test program, which runs one workload in a process of its own")
	fs.StringVar(&o.etcd, "etcd", "../bin", "folder of the program etcd")
	fs.StringVar(&o.out, "out", "../out", "folder of the results")
	short := fs.Bool("short", false, "200 nodes, once")
	if err := fs.Parse(args); err != nil {
		return nil, err // the flag package printed it with the usage
	}
	if fs.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	o.Cases, o.Sizes = strings.Split(*cases, ","), strings.Split(*sizes, ",")
	if *short {
		o.Sizes, o.Repeats = []string{"200Nodes"}, 1
	}
	if o.Repeats < 1 {
		return nil, errors.New("-repeats must be 1 at least")
	}
	return o, nil
}

// command runs every workload of every size with both profiles, one process after the other, prints a
// table and writes the results. Results measured before an error are printed with it.
func command(ctx context.Context, args []string, stdout, progress io.Writer) error {
	o, err := parse(args, progress)
	if err != nil {
		return err
	}
	env := report.Capture(ctx)
	fmt.Fprintln(stdout, env)
	cells, err := o.measure(ctx, progress)
	if len(cells) == 0 {
		return err
	}
	return errors.Join(err, o.table(cells).Write(stdout),
		report.WriteJSON(filepath.Join(o.out, resultFile), env, map[string]any{"options": o, "cells": cells}))
}

func (o *options) measure(ctx context.Context, progress io.Writer) (cells []Cell, err error) {
	for repeat := range o.Repeats {
		for _, size := range o.Sizes {
			for _, name := range o.Cases {
				of := slices.Clone(profiles)
				if repeat%2 == 1 { // so that neither always follows the other
					slices.Reverse(of)
				}
				for _, profile := range of {
					c := Cell{Case: name, Size: size, Profile: profile, Repeat: repeat}
					if c.PodsPerSecond, err = o.run(ctx, &c); err != nil {
						return cells, fmt.Errorf("%s, %s, profile %s, repeat %d: %w", name, size, profile, repeat+1, err)
					}
					cells = append(cells, c)
					fmt.Fprintf(progress, "%s, %s, %s, repeat %d/%d: %.0f pods/s\n", name, size, profile, repeat+1, o.Repeats, c.PodsPerSecond)
				}
			}
		}
	}
	return cells, nil
}

// run runs a workload in a process of its own, and returns the throughput that it reports.
func (o *options) run(ctx context.Context, c *Cell) (float64, error) {
	dir, err := os.MkdirTemp("", "nbu-")
	if err != nil {
		return 0, fmt.Errorf("make a folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	program, err := filepath.Abs(o.program)
	if err != nil {
		return 0, fmt.Errorf("find the program: %w", err)
	}
	etcd, err := filepath.Abs(o.etcd)
	if err != nil {
		return 0, fmt.Errorf("find etcd: %w", err)
	}
	var output bytes.Buffer
	cmd := exec.CommandContext(ctx, program, "-test.run=^$", "-test.benchtime=1x", "-test.timeout=40m",
		"-test.bench=^BenchmarkPerfScheduling$/^"+c.Case+"$/^"+c.Profile+"$/^"+c.Size+"$", "-perf-scheduling-label-filter=", "-data-items-dir="+dir)
	cmd.Env = append(os.Environ(), "PATH="+etcd+":"+os.Getenv("PATH"), "TMPDIR="+dir)
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	if err := cmd.Run(); err != nil {
		return 0, fmt.Errorf("%w\n%s", err, tail(output.String()))
	}
	files, err := filepath.Glob(filepath.Join(dir, "BenchmarkPerfScheduling_*.json"))
	if err != nil || len(files) != 1 {
		return 0, fmt.Errorf("%d files of results\n%s", len(files), tail(output.String()))
	}
	data, err := os.ReadFile(files[0])
	if err != nil {
		return 0, fmt.Errorf("read the results: %w", err)
	}
	return averageOf(data)
}

// averageOf reads the mean throughput from a file of scheduler_perf: 0 if that has other figures only,
// because the workload was over before the second sample, which is taken each second.
func averageOf(data []byte) (float64, error) {
	var file struct {
		DataItems []struct {
			Data   map[string]float64
			Labels map[string]string
		}
	}
	if err := json.Unmarshal(data, &file); err != nil {
		return 0, fmt.Errorf("decode the results: %w", err)
	}
	for _, item := range file.DataItems {
		if mean := item.Data["Average"]; item.Labels["Metric"] == throughput && mean > 0 {
			return mean, nil
		}
	}
	if len(file.DataItems) == 0 {
		return 0, errors.New("the results have no figures")
	}
	return 0, nil
}

// tail returns the end of a process's output.
func tail(s string) string { return s[max(0, len(s)-4000):] }

// table compares the profiles in each repeat.
func (o *options) table(cells []Cell) *report.Table {
	t := &report.Table{
		Title:  "Kubernetes' scheduler_perf: pods/s, median (quartiles) of the repeats",
		Header: []string{"workload", stock, ours, ours + " ÷ " + stock},
	}
	for _, size := range o.Sizes {
		for _, name := range o.Cases {
			by := map[string]map[int]float64{stock: {}, ours: {}}
			for _, c := range cells {
				if c.Case == name && c.Size == size {
					by[c.Profile][c.Repeat] = c.PodsPerSecond
				}
			}
			var samples [2]report.Sample
			var ratio report.Sample
			for repeat, v := range by[stock] {
				if w := by[ours][repeat]; v > 0 && w > 0 {
					samples[0], samples[1], ratio = append(samples[0], v), append(samples[1], w), append(ratio, w/v)
				}
			}
			t.Add(name+"/"+size, samples[0].Spread(0), samples[1].Spread(0), ratio.Spread(2))
		}
	}
	return t
}
