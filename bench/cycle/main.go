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
	"strconv"
	"strings"

	"k8s.io/klog/v2"

	"github.com/nvtopo/nvtopo/bench/internal/report"
)

// options are the flags.
type options struct {
	nodes      []int
	pods       int
	repeats    int
	seed       uint64
	profiles   []string // names; all if empty
	workloads  []string // names; all if empty
	cpuProfile string   // where the merged profiles of ours go
	out        string
	latency    bool
	log        io.Writer // progress

	latencyNodes int
	plans        bool
	planNodes    int

	waiting      bool
	waitingNodes int
	waitingGangs []int // how many wait; the first is 0
	waitingPods  int
}

// short makes a run that finishes in seconds and whose figures mean nothing.
func (o *options) short() {
	o.nodes, o.pods, o.repeats, o.latencyNodes, o.planNodes = []int{100}, 50, 2, 8, 200
	o.waitingNodes, o.waitingGangs, o.waitingPods = 90, []int{0, 5, 20}, 40
}

func parse(args []string) (*options, error) {
	o := &options{nodes: []int{1000, 5000}, log: os.Stderr, latencyNodes: 64, planNodes: 5000, waitingNodes: 2500, waitingGangs: []int{0, 100, 1000}, waitingPods: 2000}
	fs := flag.NewFlagSet("cycle", flag.ContinueOnError)
	list := func(into *[]string) func(string) error {
		return func(s string) error { *into = strings.Split(s, ","); return nil }
	}
	fs.Func("nodes", "numbers of nodes, comma separated (default 1000,5000)", func(s string) error {
		o.nodes = nil
		for part := range strings.SplitSeq(s, ",") {
			n, err := strconv.Atoi(part)
			if err != nil || n < 1 {
				return fmt.Errorf("%q is no number of nodes", part)
			}
			o.nodes = append(o.nodes, n)
		}
		return nil
	})
	fs.IntVar(&o.pods, "pods", 2000, "pods of each workload on the largest cluster; in proportion on the others")
	fs.IntVar(&o.repeats, "repeats", 5, "repeats of every profile")
	fs.Uint64Var(&o.seed, "seed", 1, "seed of the mixed workload")
	fs.Func("profiles", "names of the profiles to run, comma separated; the first is the baseline (default all)", list(&o.profiles))
	fs.Func("workloads", "names of the workloads to run, comma separated (default all)", list(&o.workloads))
	fs.StringVar(&o.cpuProfile, "cpuprofile", "", "`file` for the merged CPU profiles of every profile but the baseline; -tagfocus 'cycle=5000, no GPU, default' selects from it")
	fs.StringVar(&o.out, "out", "../out", "`folder` of the JSON file")
	fs.BoolVar(&o.latency, "latency", true, "also time our plugins alone on machines with 16 and 20 GPUs")
	fs.BoolVar(&o.plans, "plans", true, "also time plans of gangs on 5000 nodes")
	fs.BoolVar(&o.waiting, "waiting", true, "also time single pods beside gangs that wait, on 2500 nodes")
	short := fs.Bool("short", false, "a run of seconds that shows only that everything works")
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	if *short {
		o.short()
	}
	if o.repeats < 1 || o.pods < 1 || fs.NArg() > 0 {
		return nil, errors.New("-repeats and -pods must be positive, and nothing may follow the flags")
	}
	return o, nil
}

// selected reports whether a name is in a list, which may be empty for all.
func selected(list []string, name string) bool { return len(list) == 0 || slices.Contains(list, name) }

func run(ctx context.Context, o *options, w io.Writer) (*result, error) {
	res, err := compare(ctx, o)
	if err != nil {
		return nil, err
	}
	if o.latency {
		if res.Latency, err = latencies(ctx, o); err != nil {
			return nil, err
		}
	}
	if o.plans {
		if res.Plans, err = planning(ctx, o); err != nil {
			return nil, err
		}
	}
	if o.waiting {
		res.WaitingNodes = o.waitingNodes
		if res.Waiting, err = waitings(ctx, o); err != nil {
			return nil, err
		}
	}
	env := report.Capture(ctx)
	if _, err := fmt.Fprintf(w, "%s\n\n", env); err != nil {
		return nil, fmt.Errorf("print: %w", err)
	}
	for _, t := range res.tables() {
		if err := t.Write(w); err != nil {
			return nil, err
		}
	}
	return res, report.WriteJSON(filepath.Join(o.out, "bench-cycle.json"), env, res)
}

// quiet leaves of what the scheduler's packages log only the errors.
func quiet() {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
}

// interruptible parses the flags and runs until it is done or interrupted.
func interruptible(args []string) error {
	o, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	quiet()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	_, err = run(ctx, o, os.Stdout)
	return err
}

func main() {
	if err := interruptible(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "cycle:", err)
		os.Exit(1)
	}
}
