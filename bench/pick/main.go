// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/nvtopo/nvtopo/bench/internal/report"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := dispatch(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "pick: %v\n", err)
		os.Exit(1)
	}
}

// dispatch prints the tables to w and its progress to progress.
func dispatch(ctx context.Context, args []string, w, progress io.Writer) error {
	if len(args) > 0 && args[0] == onceArg {
		return pickOnce(args[1:], w)
	}
	flags := flag.NewFlagSet("pick", flag.ContinueOnError)
	short := flags.Bool("short", false, "a few questions only, to see that it works")
	repeats := flags.Int("repeats", 0, "measurements of each pick (default 5, with -short 2)")
	out := flags.String("out", "../out", "directory of bench-pick.json")
	seed := flags.Uint64("seed", 1, "seed of the random free sets and of the random picker")
	if err := flags.Parse(args); err != nil {
		return err
	}
	c := fullConfig()
	if *short {
		c = shortConfig()
	}
	c.Seed = *seed
	if *repeats > 0 {
		c.Repeats = *repeats
	}
	env := report.Capture(ctx)
	r, err := measure(ctx, c, progress)
	if err != nil {
		return err
	}
	if err := r.write(w, env); err != nil {
		return err
	}
	return report.WriteJSON(filepath.Join(*out, "bench-pick.json"), env, r)
}

// outcomeOfRun is all results of one run; the JSON file holds it.
type outcomeOfRun struct {
	Config    config      `json:"config"`
	Allocator string      `json:"goGPUAllocator"` // version
	Summaries []summary   `json:"summaries"`
	Reads     []readRatio `json:"tableReads"`
	Builds    []build     `json:"builds"`
	Cases     []result    `json:"cases"`
	kept      sink
}

// sizes are the machine sizes, each with a table of its own.
var sizes = []int{8, 16, 20}

func measure(ctx context.Context, c config, progress io.Writer) (*outcomeOfRun, error) {
	r := &outcomeOfRun{Config: c, Allocator: report.LinkedVersion("github.com/NVIDIA/go-gpuallocator")}
	all, err := beds()
	if err != nil {
		return nil, err
	}
	big, err := bedOf(large.name)
	if err != nil {
		return nil, err
	}
	for i := range all {
		fmt.Fprintf(progress, "tables of %s\n", all[i].name)
		if err := r.measureTables(ctx, &all[i]); err != nil {
			return nil, err
		}
	}
	big.tables = nvtopo.NewTables(big.graph, nvtopo.DefaultWeights())
	for _, b := range append(all, big) {
		asked := c.questions(b.graph)
		fmt.Fprintf(progress, "picks on %s: %d cases\n", b.name, len(asked))
		results, err := measureBed(ctx, c, b, asked)
		if err != nil {
			return nil, err
		}
		r.Cases = append(r.Cases, results...)
	}
	for _, n := range sizes {
		r.Summaries = append(r.Summaries, summarise(r.ofSize(n))...)
	}
	return r, nil
}

// measureTables builds a machine's tables and measures that and their reads.
func (r *outcomeOfRun) measureTables(ctx context.Context, b *bed) error {
	cost, err := measureBuild(ctx, b, r.Config.Repeats)
	if err != nil {
		return err
	}
	r.Builds = append(r.Builds, cost)
	r.Reads = append(r.Reads, compareReads(*b, r.Config.Seed, r.Config.Repeats, r.Config.Rounds, &r.kept)...)
	return nil
}

// questions returns the questions for one machine: with 20 GPUs a few k only,
// because the brute force visits up to 184 756 sets each.
func (c config) questions(g *nvtopo.Graph) []question {
	return slices.DeleteFunc(questions(g, c.Seed, c.Random), func(q question) bool {
		if g.Len() > tableGPUs && !slices.Contains([]int{2, 4, 8, 10}, q.k) {
			return true
		}
		return q.free.Len() > 8 && q.k > c.LargestK
	})
}

func (r *outcomeOfRun) ofSize(n int) []result {
	var out []result
	for i := range r.Cases {
		if r.Cases[i].GPUs == n {
			out = append(out, r.Cases[i])
		}
	}
	return out
}

func (r *outcomeOfRun) write(w io.Writer, env report.Environment) error {
	fmt.Fprintf(w, "%s\nseed %d, %d repeats; times per case are medians of the repeats; NVIDIA best-effort is go-gpuallocator %s itself\n\n",
		env, r.Config.Seed, r.Config.Repeats, r.Allocator)
	limit := float64(r.Config.Limit.Nanoseconds())
	for _, n := range sizes {
		results := r.ofSize(n)
		var machines []string
		for i := range results {
			machines = append(machines, results[i].Machine)
		}
		slices.Sort(machines)
		machines = slices.Compact(machines)
		sums := slices.DeleteFunc(slices.Clone(r.Summaries), func(s summary) bool { return s.GPUs != n })
		for _, t := range []*report.Table{pickTable(sums, machines, limit), sizesTable(results, limit)} {
			if err := t.Write(w); err != nil {
				return err
			}
		}
	}
	checked, same := r.agreement()
	fmt.Fprintf(w, "Ours equals the brute force in all seven steps of the objective: %d of %d cases up to %d GPUs.\n", same, checked, tableGPUs)
	fmt.Fprintf(w, "Regret and optimal count cases with 2 <= k < free GPUs. A pick of more than %.0f steps runs in a process of its own,\n"+
		"until %d repeats or %v are done, and fails after %v. A failed pick is not optimal and has no regret.\n\n",
		r.Config.Slow, r.Config.Repeats, r.Config.SlowTotal, r.Config.Limit)
	for _, t := range []*report.Table{readTable(r.Reads), buildTable(r.Builds)} {
		if err := t.Write(w); err != nil {
			return err
		}
	}
	return nil
}

// agreement counts the cases whose whole objective was checked.
func (r *outcomeOfRun) agreement() (checked, same int) {
	for i := range r.Cases {
		if a := r.Cases[i].AllSteps; a != nil {
			checked++
			if *a {
				same++
			}
		}
	}
	return checked, same
}
