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
	// cycleCommand is the first argument of a run of the cycle alone.
	cycleCommand = "cycle"

	resultFile  = "bench-scheduler.json"
	backlogFile = "bench-scheduler-backlog.json"
	cycleFile   = "bench-cycle.json"
)

// method is printed above the service's tables.
const method = `Pods are made before the scheduler starts and wait. Pods/s and CPU are of the window that ends with the last
binding. It begins with the first, so that reading caches is not in it, nor our graphs, for which GPU pods wait. Pods
without GPUs do not wait for them: with none the scheduler reads them in the window, with none-warm before it.
Ratios compare cells of the same repeat. Peak is the most memory that the scheduler ever had resident. Attempt latency includes binding and is read from a
histogram whose buckets double, so that a percentile is exact to a factor of two only. CPU of the API server
includes etcd's. Writes are creates, updates and patches of pods and their subresources, refused ones (overload,
conflicts) apart; events are not counted.`

func main() {
	if len(os.Args) > 1 && os.Args[1] == controlPlaneCommand {
		os.Exit(serveControlPlane(os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
	}
	// The first Ctrl-C ends things in order; stop restores the usual effect of the second one.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop)
	err := quietLogs("FATAL") // failures are returned as errors
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
	Nodes     []int    `json:"nodes"`
	Pods      int      `json:"pods"`
	Repeats   int      `json:"repeats"`
	Workloads []string `json:"workloads"`
	Profiles  []string `json:"profiles"`
	Seed      uint64   `json:"seed"`
	out       string
	cycle     bool

	QPS      int           `json:"qps,omitempty"`
	Hostile  int           `json:"hostile,omitempty"` // number of hostile nodes, in cells of that profile
	Writes   float64       `json:"hostileWritesPerSecond,omitempty"`
	Renewals float64       `json:"renewalsPerSecond,omitempty"` // of honest nodes beside hostile ones
	Hold     time.Duration `json:"hold,omitempty"`              // after the last binding
	Backlog  int           `json:"backlog,omitempty"`           // waiting pods; 0: measure throughput
	Releases int           `json:"releases,omitempty"`
	Against  string        `json:"against,omitempty"` // another scheduler, to compare with
	Racks    int           `json:"racks,omitempty"`   // number of racks that nodes are labelled with
	// Scheduler is the measured program.
	Scheduler string `json:"scheduler,omitempty"`
	stall     time.Duration
	profile   bool

	cpuProfile                          string
	cycles, latency, plansAlone, beside bool
	latencyNodes, planNodes             int
	besideNodes, besidePods             int
	besideGangs                         []int // numbers of waiting gangs; the first is 0
}

func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{latencyNodes: 64, planNodes: 5000, besideNodes: 2500, besideGangs: []int{0, 100, 1000}, besidePods: 2000}
	workloads, profiles, chosen := serviceWorkloads, profileNames(serviceProfiles), defaultProfiles
	shortly := map[string]string{"nodes": "50", "pods": "60", "repeats": "1", "profiles": profileStock + "," + profileBinding}
	if o.cycle = len(args) > 0 && args[0] == cycleCommand; o.cycle {
		args, workloads, profiles, chosen = args[1:], cycleWorkloads, profileNames(cycleProfiles), len(cycleProfiles)
		shortly = map[string]string{"nodes": "100", "pods": "50", "repeats": "2"}
	}
	fs := flag.NewFlagSet("scheduler", flag.ContinueOnError)
	fs.SetOutput(stderr)
	nodes := fs.String("nodes", "1000,5000", "sizes of the cluster, each with 8 GPUs a node")
	workloadFlag := fs.String("workloads", strings.Join(workloadNames(workloads), ","), "what the pods ask for")
	profileFlag := fs.String("profiles", strings.Join(profiles[:chosen], ","), "profiles to compare, of "+strings.Join(profiles, ", "))
	fs.IntVar(&o.Pods, "pods", 2000, "pods in a cell; fewer where not all would fit whatever the policy, three times as many in none-warm and extended, four times in four-late and four-beside-gangs or -pods; of the cycle alone on the largest cluster, in proportion on the others")
	fs.IntVar(&o.Repeats, "repeats", 5, "cells of each kind")
	fs.Uint64Var(&o.Seed, "seed", 1, "seed of the order of pods in the mix")
	fs.StringVar(&o.out, "out", "../out", "folder of the results")
	short := fs.Bool("short", false, "a small cluster and few repeats; flags that are given still count")
	if o.cycle {
		o.cycleFlags(fs)
	} else {
		o.serviceFlags(fs)
	}
	if err := fs.Parse(args); err != nil {
		return nil, err // the flag package printed it with the usage
	}
	if fs.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	if *short {
		fs.Visit(func(f *flag.Flag) { delete(shortly, f.Name) })
		for name, value := range shortly {
			if err := fs.Set(name, value); err != nil {
				return nil, fmt.Errorf("set -%s: %w", name, err)
			}
		}
		o.latencyNodes, o.planNodes, o.besideNodes, o.besideGangs, o.besidePods = 8, 200, 90, []int{0, 5, 20}, 40
	}
	for text := range strings.SplitSeq(*nodes, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("-nodes: %q is not a number of nodes", text)
		}
		o.Nodes = append(o.Nodes, n)
	}
	o.Workloads, o.Profiles = strings.Split(*workloadFlag, ","), strings.Split(*profileFlag, ",")
	if err := errors.Join(known("-workloads", o.Workloads, workloadNames(workloads)), known("-profiles", o.Profiles, profiles)); err != nil {
		return nil, err
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	if o.Against != "" {
		o.Profiles = withBefore(o.Profiles)
	}
	return o, nil
}

func (o *options) serviceFlags(fs *flag.FlagSet) {
	fs.IntVar(&o.QPS, "qps", 5000, "clientConnection.qps of every profile, with twice the burst; the default is beyond what two cores can do")
	fs.StringVar(&o.Scheduler, "scheduler", "../bin/nvtopo-scheduler", "the scheduler to measure")
	fs.DurationVar(&o.stall, "stall", time.Minute, "give a cell up when no pod was bound for so long")
	fs.BoolVar(&o.profile, "cpuprofile", false,
		"run one more cell of each kind, which does not count, and store CPU profiles of scheduler and API server and the scheduler's heap profile in the folder of the results")
	fs.IntVar(&o.Hostile, "hostile", 100, "nodes that are hostile in cells of the profiles "+profileHostile+" and "+profileUnlimited)
	fs.Float64Var(&o.Writes, "hostile-writes", 50, "objects that they publish a second, all together")
	fs.Float64Var(&o.Renewals, "renewals", 50, "renewals a second by as many honest exporters, timed in all cells of a run with hostile nodes")
	fs.DurationVar(&o.Hold, "hold", 0, "measure the scheduler's CPU for so long after the last binding, when it has nothing to do")
	fs.IntVar(&o.Backlog, "backlog", 0, "in place of throughput, measure the scheduler with so many pods waiting for the GPUs of full nodes, of which one at a time comes free")
	fs.IntVar(&o.Releases, "releases", 20, "how many come free with -backlog")
	fs.StringVar(&o.Against, "against", "", "another scheduler to measure beside this one, under the names of our profiles with "+beforeSuffix)
	fs.IntVar(&o.Racks, "racks", 50, "racks that the nodes are in, by their labels and a ClusterTopology; 0: nobody knows")
}

func (o *options) cycleFlags(fs *flag.FlagSet) {
	fs.StringVar(&o.cpuProfile, "cpuprofile", "", "`file` for the merged CPU profiles of every profile but the first; -tagfocus 'cycle=5000, no GPU, default' selects from it")
	fs.BoolVar(&o.cycles, "cycles", true, "time scheduling cycles; without it only what the next three flags name")
	fs.BoolVar(&o.latency, "latency", true, "also time our plugins alone on machines with 16 and 20 GPUs")
	fs.BoolVar(&o.plansAlone, "plans", true, "also time plans of gangs on 5000 nodes")
	fs.BoolVar(&o.beside, "waiting", true, "also time single pods beside gangs that wait, on 2500 nodes")
}

// hostile reports whether some cells have hostile nodes.
func (o *options) hostile() bool {
	return slices.ContainsFunc(o.Profiles, func(p string) bool { return findProfile(p).hostile })
}

// binary returns the scheduler binary of a profile.
func (o *options) binary(profile string) string {
	if strings.HasSuffix(profile, beforeSuffix) {
		return o.Against
	}
	return o.Scheduler
}

func (o *options) check() error {
	if o.Pods < 2 || o.Repeats < 1 {
		return errors.New("-pods must be 2 at least, -repeats 1")
	}
	if o.cycle {
		return nil
	}
	if o.QPS < 1 || o.Racks < 0 {
		return errors.New("-qps must be 1 at least, and -racks not negative")
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

// known returns an error if a flag names unknown values.
func known(name string, given, all []string) error {
	for _, g := range given {
		if !slices.Contains(all, g) {
			return fmt.Errorf("%s: no %q, only %s", name, g, strings.Join(all, ", "))
		}
	}
	return nil
}

// Result is the content of the JSON file.
type Result struct {
	Options *options `json:"options"`
	Cells   []Cell   `json:"cells,omitempty"`

	LatencyNodes int        `json:"latencyNodes,omitempty"`
	Latency      []*latency `json:"latency,omitempty"`
	PlanNodes    int        `json:"planNodes,omitempty"`
	Plans        []*plans   `json:"plans,omitempty"`
	WaitingNodes int        `json:"waitingNodes,omitempty"`
	Waiting      []*beside  `json:"waiting,omitempty"`
}

// command runs the benchmark, prints the tables and writes the results. Results measured before an
// error or Ctrl-C are kept.
func command(ctx context.Context, args []string, stdout, progress io.Writer) error {
	o, err := parse(args, progress)
	if err != nil {
		return err
	}
	env := report.Capture(ctx)
	fmt.Fprintln(stdout, env)
	if !o.cycle {
		fmt.Fprintln(stdout, method)
	}
	fmt.Fprintln(stdout)
	if o.Backlog > 0 {
		all, err := runBacklog(ctx, o, stdout, progress)
		if len(all) > 0 {
			err = errors.Join(err, report.WriteJSON(filepath.Join(o.out, backlogFile), env, all))
		}
		return err
	}
	res, run, file := &Result{Options: o}, runService, resultFile
	if o.cycle {
		run, file = runCycle, cycleFile
	}
	tables, err := run(ctx, o, res, progress)
	for _, t := range tables {
		err = errors.Join(err, t.Write(stdout))
	}
	if len(tables) > 0 {
		err = errors.Join(err, report.WriteJSON(filepath.Join(o.out, file), env, res))
	}
	return err
}
