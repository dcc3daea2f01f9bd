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
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/nvtopo/nvtopo/bench/internal/report"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	o, err := parse(os.Args[1:], os.Stderr, os.Getenv("NVTOPO_FIXTURES"))
	if err == nil {
		err = run(ctx, o, os.Stdout, os.Stderr)
	}
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "gangs:", err)
		os.Exit(1)
	}
}

// options are the settings of one run.
type options struct {
	out, fixtures     string
	seeds             []uint64
	workers           int
	jobs, largeJobs   int // of a trace; 0 large ones: no large cluster
	mixes             []string
	loads             []float64
	small, large, few bool // which clusters; few: fewer or other jobs, cells or seeds than the bars are set for
	short             bool // bars are not judged
	models            bool // judge gangs on fabrics of several GPU models, and nothing else
	openb             bool // jobs of one pod have the GPU requests of openb's
}

// The numbers that the bars are set for. The large cluster has six times as many GPUs and gets ten
// times as many jobs, which arrive over eleven days: it takes three until it is as full as it gets.
const (
	allSeeds = 3
	allJobs  = 60_000
	allLarge = 600_000
	fewJobs  = 1500
)

func parse(args []string, usage io.Writer, fixtures string) (*options, error) {
	f := flag.NewFlagSet("gangs", flag.ContinueOnError)
	f.SetOutput(usage)
	o := &options{fixtures: fixtures}
	f.StringVar(&o.out, "out", "../out", "directory of bench-gangs.json and plots/")
	f.IntVar(&o.jobs, "jobs", allJobs, "jobs of a trace on the Lingjun fabric")
	f.IntVar(&o.largeJobs, "large-jobs", allLarge, "jobs of a trace on the fabric of 5000 nodes")
	f.IntVar(&o.workers, "workers", runtime.GOMAXPROCS(0), "replays at a time")
	f.BoolVar(&o.short, "short", false, "few jobs and cells: shows that it works, measures nothing")
	f.BoolVar(&o.openb, "openb-singles", false, "jobs of one pod ask for 1, 2, 4 or 8 GPUs as Alibaba's openb pods do; the bars are set for 1, 2 or 4")
	f.BoolVar(&o.models, "models", false, "only judge gangs on fabrics of two and four GPU models: all-reduces, waits, gangs on several models")
	seeds := f.Int("seeds", allSeeds, fmt.Sprintf("number of seeds, 1 to n; with -models %d if it is not given", modelSeeds))
	mixNames := f.String("mixes", "", "mixes with commas between them; all if empty")
	loads := f.String("loads", "", "loads with commas between them; all if empty")
	clusters := f.String("clusters", "lingjun,large", "clusters with commas between them")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if o.models {
		o.asModels(f, seeds, mixNames, loads)
	}
	if o.short {
		o.jobs, o.largeJobs, *mixNames, *loads = fewJobs, 2*fewJobs, "frag,big", "0.9"
	}
	if f.NArg() > 0 || *seeds < 1 || o.workers < 1 || o.jobs < 1 || o.largeJobs < 1 {
		return nil, errors.New("usage: -seeds, -workers, -jobs and -large-jobs from 1, no arguments")
	}
	for i := range *seeds {
		o.seeds = append(o.seeds, uint64(i)+1)
	}
	if err := o.chooseClusters(*clusters); err != nil {
		return nil, err
	}
	if err := o.choose(*mixNames, *loads); err != nil {
		return nil, err
	}
	o.few = *mixNames+*loads != "" || o.fewer()
	if o.models {
		o.few = o.jobs < modelJobs || len(o.seeds) < modelSeeds
	}
	return o, nil
}

// asModels sets flags missing on the command line to the defaults for clusters of several models.
func (o *options) asModels(f *flag.FlagSet, seeds *int, mixNames, loads *string) {
	given := map[string]bool{}
	f.Visit(func(g *flag.Flag) { given[g.Name] = true })
	if !given["seeds"] {
		*seeds = modelSeeds
	}
	if !given["jobs"] {
		o.jobs = modelJobs
	}
	*mixNames, *loads = cmp.Or(*mixNames, mixTrain+","+mixFrag), cmp.Or(*loads, "0.7,0.9")
}

// fewer reports whether some setting is less than, or other than, that of the bars.
func (o *options) fewer() bool {
	return len(o.seeds) < allSeeds || o.jobs < allJobs || o.largeJobs < allLarge || !o.small || !o.large || o.openb
}

// chooseClusters reads the fabrics that jobs are replayed on.
func (o *options) chooseClusters(clusters string) error {
	for name := range strings.SplitSeq(clusters, ",") {
		switch name {
		case lingjunName:
			o.small = true
		case largeName:
			o.large = true
		default:
			return fmt.Errorf("no cluster %q, want %s, %s or both", name, lingjunName, largeName)
		}
	}
	return nil
}

// choose reads the mixes and loads to replay.
func (o *options) choose(mixNames, loads string) error {
	for _, m := range mixes() {
		o.mixes = append(o.mixes, m.name)
	}
	o.loads = allLoads()
	if mixNames != "" {
		known := o.mixes
		o.mixes = strings.Split(mixNames, ",")
		for _, m := range o.mixes {
			if !slices.Contains(known, m) {
				return fmt.Errorf("no mix %q, want of %s", m, strings.Join(known, ", "))
			}
		}
	}
	if loads == "" {
		return nil
	}
	o.loads = nil
	for text := range strings.SplitSeq(loads, ",") {
		load, err := strconv.ParseFloat(text, 64)
		if err != nil || load <= 0 {
			return fmt.Errorf("load %q: want a number above 0", text)
		}
		o.loads = append(o.loads, load)
	}
	return nil
}

// Result is the content of the JSON file.
type Result struct {
	Seeds []uint64      `json:"seeds"`
	Jobs  int           `json:"jobs"`
	Large int           `json:"largeJobs"`
	Few   bool          `json:"fewerThanTheBarsAreSetFor"`
	Cells []CellSummary `json:"cells"`
	Plans []PlanTime    `json:"plans"`
	Bars  []Bar         `json:"bars"`
}

func measure(ctx context.Context, o *options, progress io.Writer) (*Result, error) {
	makeTasks, bars := suite, barsOf
	if o.models {
		makeTasks, bars = modelSuite, modelBars
	}
	tasks, err := makeTasks(o)
	if err != nil {
		return nil, err
	}
	plans := &planTimes{}
	outcomes, err := replayAll(ctx, o, tasks, plans, func(done, of int) {
		fmt.Fprintf(progress, "%d of %d traces replayed\n", done, of)
	})
	if err != nil {
		return nil, err
	}
	r := &Result{Seeds: o.seeds, Jobs: o.jobs, Large: o.largeJobs, Few: o.few, Plans: plans.summary()}
	for i := range tasks {
		r.Cells = append(r.Cells, summarise(&tasks[i], outcomes[i]))
	}
	for i := range r.Cells {
		r.Bars = append(r.Bars, bars(&r.Cells[i])...)
	}
	r.Bars = append(r.Bars, planBars(r.Plans)...)
	return r, nil
}

func run(ctx context.Context, o *options, w, progress io.Writer) error {
	env := report.Capture(ctx)
	r, err := measure(ctx, o, progress)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "%s\n\n", env)
	write, name := writeReport, "bench-gangs.json"
	if o.models {
		write, name = writeModels, "bench-gang-models.json"
	}
	if err := write(w, r); err != nil {
		return err
	}
	path := filepath.Join(o.out, name)
	if err := report.WriteJSON(path, env, r); err != nil {
		return err
	}
	written := []string{path}
	if f := figure(r.Cells); f != nil && !o.models {
		plot := filepath.Join(o.out, "plots", "gangs-one-rack.svg")
		if err := f.Save(plot); err != nil {
			return err
		}
		written = append(written, plot)
	}
	fmt.Fprintf(w, "Written: %s\n", strings.Join(written, ", "))
	if missed := missedOf(r.Bars); missed > 0 && !o.short {
		return fmt.Errorf("%d of %d bars missed", missed, len(r.Bars))
	}
	return nil
}
