// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"k8s.io/klog/v2"

	"github.com/nvtopo/nvtopo/bench/internal/fleet"
	"github.com/nvtopo/nvtopo/bench/internal/report"
)

const resultFile = "bench-pools.json"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	err := quiet()
	if err == nil {
		err = command(ctx, os.Args[1:], os.Stdout, os.Stderr)
	}
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench-pools:", err)
		os.Exit(1)
	}
}

// quiet drops the API server's log in this process: failures are returned as errors.
func quiet() error {
	fs := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(fs)
	klog.SetOutput(io.Discard)
	if err := errors.Join(fs.Set("logtostderr", "false"), fs.Set("stderrthreshold", "FATAL")); err != nil {
		return fmt.Errorf("direct the logs: %w", err)
	}
	return nil
}

// options are the flags.
type options struct {
	Nodes    int           `json:"nodes"`
	Jobs     int           `json:"jobs"`
	Tenants  int           `json:"tenants"`
	Repeats  int           `json:"repeats"`
	Profiles []string      `json:"profiles"`
	Stall    time.Duration `json:"-"`
	bin      string
	out      string
}

func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{}
	fs := flag.NewFlagSet("pools", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.IntVar(&o.Nodes, "nodes", 640, "nodes of 8 GPUs")
	fs.IntVar(&o.Jobs, "jobs", 1000, "jobs in a cell, made at once")
	fs.IntVar(&o.Tenants, "tenants", 4, "tenants that the jobs are dealt out to")
	fs.IntVar(&o.Repeats, "repeats", 3, "cells of each scheduler")
	compared := fs.String("profiles", strings.Join(profiles, ","), "what is compared, separated by commas")
	fs.DurationVar(&o.Stall, "stall", 2*time.Minute, "give a cell up when no job was admitted and no pod bound for so long")
	fs.StringVar(&o.bin, "bin", "../bin", "folder of nvtopo-scheduler, nvtopo-pool-controller, kwok and kueue")
	fs.StringVar(&o.out, "out", "../out", "folder of the results")
	if err := fs.Parse(args); err != nil {
		return nil, err // the flag package printed it with the usage
	}
	if fs.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	if o.Nodes < 1 || o.Jobs < 2 || o.Tenants < 1 || o.Repeats < 1 {
		return nil, errors.New("-nodes, -tenants and -repeats must be 1 at least, -jobs 2")
	}
	o.Profiles = strings.Split(*compared, ",")
	for _, p := range o.Profiles {
		if !slices.Contains(profiles, p) {
			return nil, fmt.Errorf("-profiles: no %q, only %s", p, strings.Join(profiles, ", "))
		}
	}
	if o.Jobs > o.Nodes*(fleet.GPUs/gpus) {
		return nil, fmt.Errorf("-jobs: %d nodes hold %d jobs of %d GPUs", o.Nodes, o.Nodes*(fleet.GPUs/gpus), gpus)
	}
	return o, nil
}

// command runs the benchmark, prints the table and writes the results.
func command(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	env := report.Capture(ctx)
	fmt.Fprintln(stdout, env)
	fmt.Fprintln(stdout, method)
	fmt.Fprintln(stdout)
	cells, err := run(ctx, o, stderr)
	if len(cells) > 0 {
		err = errors.Join(err, table(o, cells).Write(stdout), requestTable(o, cells).Write(stdout),
			report.WriteJSON(filepath.Join(o.out, resultFile), env, result{Options: o, Cells: cells}))
	}
	return err
}
