// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
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
	"syscall"
	"time"

	"github.com/nvtopo/nvtopo/bench/internal/report"
)

const (
	resultFile  = "bench-scheduler.json"
	backlogFile = "bench-scheduler-backlog.json"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == controlPlaneCommand {
		os.Exit(serveControlPlane(os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
	}
	// The first Ctrl-C ends things in order; stop gives the second one back its usual effect.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop)
	err := quietLogs("FATAL") // what goes wrong is returned as an error
	if err == nil {
		err = command(ctx, os.Args[1:], os.Stdout, os.Stderr)
	}
	stop()
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(os.Stderr, "interrupted; nothing is left behind")
		os.Exit(130) // 128 + SIGINT, as shells report it
	default:
		fmt.Fprintln(os.Stderr, "bench-scheduler:", err)
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	Nodes     []int         `json:"nodes"`
	Pods      int           `json:"pods"`
	Repeats   int           `json:"repeats"`
	Workloads []string      `json:"workloads"`
	Profiles  []string      `json:"profiles"`
	Seed      uint64        `json:"seed"`
	QPS       int           `json:"qps"`
	Scheduler string        `json:"scheduler"`
	Stall     time.Duration `json:"-"`
	Hostile   int           `json:"hostile"` // nodes that are, in cells of that profile
	Writes    float64       `json:"hostileWritesPerSecond"`
	Renewals  float64       `json:"renewalsPerSecond"` // of honest nodes beside hostile ones
	Hold      time.Duration `json:"hold"`              // after the last binding
	Profile   bool          `json:"-"`
	Backlog   int           `json:"backlog,omitempty"` // waiting pods; 0: measure throughput
	Releases  int           `json:"releases,omitempty"`
	Against   string        `json:"against,omitempty"`        // another scheduler
	Without   string        `json:"againstWithout,omitempty"` // a plugin that it does not have
	Racks     int           `json:"racks"`                    // that nodes are labelled with
	out       string
	logFile   string
	log       io.Writer // nil unless logFile is set
}

func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{}
	fs := flag.NewFlagSet("scheduler", flag.ContinueOnError)
	fs.SetOutput(stderr)
	nodes := fs.String("nodes", "1000,5000", "sizes of the cluster, each with 8 GPUs a node")
	workloads := fs.String("workloads", strings.Join(workloadNames(), ","), "what the pods ask for")
	profiles := fs.String("profiles", strings.Join(defaultProfiles, ","),
		"profiles to compare, of "+strings.Join(profileNames(), ", "))
	fs.IntVar(&o.Pods, "pods", 2000, "pods in a cell; fewer where not all would fit whatever the policy, three times as many in none-warm and extended, four times in four-late and four-beside-gangs or -pods")
	fs.IntVar(&o.Repeats, "repeats", 5, "cells of each kind")
	fs.Uint64Var(&o.Seed, "seed", 1, "seed of the order of pods in the mix")
	fs.IntVar(&o.QPS, "qps", 5000, "clientConnection.qps of every profile, with twice the burst; the default is beyond what two cores can do")
	fs.StringVar(&o.Scheduler, "scheduler", "../bin/nvtopo-scheduler", "the scheduler to measure")
	fs.StringVar(&o.out, "out", "../out", "folder of the results")
	fs.StringVar(&o.logFile, "log-file", "", "file for the logs of control plane and schedulers; without it they are shown when something fails")
	fs.DurationVar(&o.Stall, "stall", time.Minute, "give a cell up when no pod was bound for so long")
	fs.BoolVar(&o.Profile, "cpuprofile", false,
		"run one more cell of each kind, which does not count, and store CPU profiles of scheduler and API server and the scheduler's heap profile in the folder of the results")
	fs.IntVar(&o.Hostile, "hostile", 100, "nodes that are hostile in cells of the profiles "+profileHostile+" and "+profileUnlimited)
	fs.Float64Var(&o.Writes, "hostile-writes", 50, "objects that they publish a second, all together")
	fs.Float64Var(&o.Renewals, "renewals", 50, "renewals a second by as many honest exporters, timed in all cells of a run with hostile nodes")
	fs.DurationVar(&o.Hold, "hold", 0, "measure the scheduler's CPU for so long after the last binding, when it has nothing to do")
	fs.IntVar(&o.Backlog, "backlog", 0, "in place of throughput, measure the scheduler with so many pods waiting for the GPUs of full nodes, of which one at a time comes free")
	fs.IntVar(&o.Releases, "releases", 20, "how many come free with -backlog")
	fs.StringVar(&o.Against, "against", "", "another scheduler to measure beside this one, under the names of our profiles with "+beforeSuffix)
	fs.StringVar(&o.Without, "against-without", "", "a plugin of our profiles that the scheduler of -against does not have yet")
	fs.IntVar(&o.Racks, "racks", 50, "racks that the nodes are in, by their labels and a ClusterTopology; 0: nobody knows")
	short := fs.Bool("short", false, "a small cluster, two profiles, one repeat; flags that are given still count")
	if err := fs.Parse(args); err != nil {
		return nil, err // the flag package printed it with the usage
	}
	if fs.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	if *short {
		given := map[string]bool{}
		fs.Visit(func(f *flag.Flag) { given[f.Name] = true })
		for name, value := range map[string]string{
			"nodes": "50", "pods": "60", "repeats": "1", "profiles": profileStock + "," + profileBinding,
		} {
			if given[name] {
				continue
			}
			if err := fs.Set(name, value); err != nil {
				return nil, fmt.Errorf("set -%s: %w", name, err)
			}
		}
	}
	for text := range strings.SplitSeq(*nodes, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("-nodes: %q is not a number of nodes", text)
		}
		o.Nodes = append(o.Nodes, n)
	}
	o.Workloads, o.Profiles = strings.Split(*workloads, ","), strings.Split(*profiles, ",")
	if err := o.check(); err != nil {
		return nil, err
	}
	if o.Against != "" {
		o.Profiles = withBefore(o.Profiles)
	}
	return o, nil
}

// hostile says whether some cells have hostile nodes.
func (o *options) hostile() bool { return slices.ContainsFunc(o.Profiles, isHostile) }

// binary is the scheduler that a profile is measured with.
func (o *options) binary(profile string) string {
	if strings.HasSuffix(profile, beforeSuffix) {
		return o.Against
	}
	return o.Scheduler
}

func (o *options) check() error {
	if err := known("-workloads", o.Workloads, workloadNames()); err != nil {
		return err
	}
	if err := known("-profiles", o.Profiles, profileNames()); err != nil {
		return err
	}
	if o.Racks < 0 {
		return errors.New("-racks must not be negative")
	}
	if o.Pods < 2 || o.Repeats < 1 || o.QPS < 1 {
		return errors.New("-pods must be 2 at least, -repeats and -qps 1")
	}
	if o.hostile() && (o.Hostile < 1 || o.Writes <= 0 || o.Renewals <= 0 || 2*o.Hostile >= slices.Min(o.Nodes)) {
		return errors.New("-hostile must be 1 at least and fewer than half of the nodes, -hostile-writes and -renewals above 0")
	}
	for _, binary := range []string{o.Scheduler, cmp.Or(o.Against, o.Scheduler)} {
		if _, err := os.Stat(binary); err != nil {
			return fmt.Errorf("the scheduler is missing, build it or set -scheduler: %w", err)
		}
	}
	return nil
}

// known checks that a flag names only what there is.
func known(name string, given, all []string) error {
	for _, g := range given {
		if !slices.Contains(all, g) {
			return fmt.Errorf("%s: no %q, only %s", name, g, strings.Join(all, ", "))
		}
	}
	return nil
}

// command runs the benchmark, prints the tables and writes the results.
func command(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	if o.logFile != "" {
		f, err := os.OpenFile(o.logFile, os.O_CREATE|os.O_TRUNC|os.O_WRONLY|os.O_APPEND, 0o644)
		if err != nil {
			return fmt.Errorf("open the log file: %w", err)
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		o.log = f
	}
	env := report.Capture(ctx)
	fmt.Fprintln(stdout, env)
	fmt.Fprintln(stdout, method)
	fmt.Fprintln(stdout)
	if o.Backlog > 0 {
		all, err := runBacklog(ctx, o, stdout, stderr)
		if len(all) > 0 {
			err = errors.Join(err, report.WriteJSON(filepath.Join(o.out, backlogFile), env, all))
		}
		return err
	}
	cells, err := run(ctx, o, stderr)
	if len(cells) > 0 {
		// An error or Ctrl-C late in a long run must not cost what was measured.
		err = errors.Join(err, printTables(stdout, o, cells), report.WriteJSON(filepath.Join(o.out, resultFile), env, newResult(o, cells)))
	}
	return err
}
