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
	"runtime"
	"slices"
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
		fmt.Fprintln(os.Stderr, "quality:", err)
		os.Exit(1)
	}
}

// options are the settings of one run.
type options struct {
	out     string
	seeds   []uint64
	workers int
	kinds   []kind // of clusters

	nodes, pods           int // of the small clusters; pods of a trace
	largeNodes, largePods int // of the large ones; 0 nodes: none
	loads                 []float64
	long                  int      // pods of the long trace of the mix; 0: none
	extra                 []source // traces besides the mix
	mostSeeds             int      // most seeds of a cell whose deciding mean is not precise; see untilSure
	unequal               bool     // judge placements on machines of several kinds, and nothing else
}

func parse(args []string, usage io.Writer, fixtures string) (*options, error) {
	f := flag.NewFlagSet("quality", flag.ContinueOnError)
	f.SetOutput(usage)
	out := f.String("out", "../out", "directory of bench-quality.json and plots/")
	short := f.Bool("short", false, "small clusters and few pods: shows that it works, measures nothing")
	wide := f.Bool("wide", false, "also loads 0.75 and 1.05 on the small clusters")
	seeds := f.Int("seeds", 10, "number of seeds, 1 to n; with -unequal the least")
	most := f.Int("most-seeds", mostSeeds, "with -unequal: the most seeds of a cell, where half of the 95 % interval of the mean time of an all-reduce is above 2.5 % of it")
	unequal := f.Bool("unequal", false, "only judge placements on fleets of several kinds of machine: all-reduces, waits, completion")
	clusters := f.String("clusters", "", "names of the kinds of clusters to replay on, with commas between them; all if empty")
	workers := f.Int("workers", runtime.GOMAXPROCS(0), "replays at a time")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 || *seeds < 1 || *workers < 1 {
		return nil, errors.New("usage: -seeds and -workers from 1, no arguments")
	}
	// The first fifth warms the cluster up. That leaves as many pods as the openb list,
	// the source of the mix, has with GPUs: 8000, over three days. The large clusters
	// get as many days.
	o := &options{
		out: *out, workers: *workers, loads: checkedLoads(), kinds: kinds(),
		nodes: 64, pods: 10_000, largeNodes: 640, largePods: 100_000,
	}
	if *short {
		o.nodes, o.pods, o.largeNodes, *seeds = 8, 400, 0, min(*seeds, 2)
	}
	if *wide {
		o.loads = []float64{0.75, 0.85, 0.95, 1.05}
	}
	if *unequal {
		o.unequal, o.kinds, o.loads, o.mostSeeds = true, fleets(), judgedLoads(), *most
		if *short {
			o.mostSeeds = 0
		} else {
			o.nodes, o.pods = 96, 20_000
		}
	}
	if *clusters != "" {
		var err error
		if o.kinds, err = named(o.kinds, *clusters); err != nil {
			return nil, err
		}
	}
	for i := range *seeds {
		o.seeds = append(o.seeds, uint64(i)+1)
	}
	o.extra = []source{synthetic(tracePhilly, o.pods)}
	if !*short {
		o.long = longer * o.pods
	}
	src, ok, err := openb(fixtures)
	if err != nil {
		return nil, err
	}
	if ok {
		o.extra = append(o.extra, src)
	}
	return o, nil
}

// named returns the kinds of clusters that a comma-separated list names.
func named(known []kind, list string) (out []kind, err error) {
	for name := range strings.SplitSeq(list, ",") {
		i := slices.IndexFunc(known, func(k kind) bool { return k.name == name })
		if i < 0 {
			return nil, fmt.Errorf("no kind of cluster %q, want of %s", name, strings.Join(names(known), ", "))
		}
		out = append(out, known[i])
	}
	return out, nil
}

// Result is the content of the JSON file.
type Result struct {
	Seeds  []uint64      `json:"seeds"`
	Checks []Check       `json:"checks"`
	Cells  []CellSummary `json:"cells"`
}

func measure(ctx context.Context, o *options, progress io.Writer) (*Result, error) {
	tasks, err := tasksOf(o)
	if err != nil {
		return nil, err
	}
	report := func(done, of int) {
		if done%20 == 0 || done == of {
			fmt.Fprintf(progress, "%d of %d traces replayed\n", done, of)
		}
	}
	outcomes, err := replayAll(ctx, tasks, o.seeds, o.workers, report)
	if err != nil {
		return nil, err
	}
	if err := untilSure(ctx, o, tasks, outcomes, report); err != nil {
		return nil, err
	}
	r := &Result{Seeds: o.seeds}
	if r.Cells, err = summarise(tasks, outcomes); err != nil {
		return nil, err
	}
	if o.unequal {
		return r, nil
	}
	for i := range r.Cells {
		r.Checks = append(r.Checks, checksOf(&r.Cells[i], o.nodes)...)
	}
	return r, nil
}

func run(ctx context.Context, o *options, w, progress io.Writer) error {
	env := report.Capture(ctx)
	r, err := measure(ctx, o, progress)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "%s\n\nMean and 95 %% confidence interval over %d seeds.\n\n", env, len(r.Seeds))
	write, name := writeReport, "bench-quality.json"
	if o.unequal {
		write, name = writeJudged, "bench-unequal.json"
	}
	if err := write(w, r); err != nil {
		return err
	}
	path := filepath.Join(o.out, name)
	if err := report.WriteJSON(path, env, r); err != nil {
		return err
	}
	if o.unequal {
		fmt.Fprintf(w, "Written: %s\n", path)
		return nil
	}
	figures, err := saveFigures(filepath.Join(o.out, "plots"), r)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "Written: %s\n", strings.Join(append([]string{path}, figures...), ", "))
	return nil
}
