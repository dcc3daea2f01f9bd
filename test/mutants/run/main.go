// SPDX-License-Identifier: Apache-2.0

// Command run prints, for each mutant of test/mutants, the tests that fail for it. It runs in the root of
// the repository, whose files stay unchanged: go test gets the wrong edit as an overlay. It exits with 1
// if a mutant survives.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nvtopo/nvtopo/test/mutants"
)

type options struct {
	dir, out string
	tier     string
	packages []string // whose tests are the unit tier
	core     []string // whose tests are the core tier
	coreRun  string   // go test -run of the core tier
	timeout  time.Duration
	resume   bool
	patterns []string
}

var errSurvived = errors.New("not every mutant is killed")

func main() {
	o := options{}
	var packages, core string
	flag.StringVar(&o.dir, "dir", "test/mutants", "the folder of patches")
	flag.StringVar(&o.out, "out", "out", "the folder of mutants.md and of what is known of each mutant")
	flag.StringVar(&o.tier, "tier", "unit", "unit or core, which are the tests of core for those that survive unit")
	flag.StringVar(&packages, "packages", "./pkg/... ./internal/lab/sim/... ./cmd/nvtopo", "the packages of the unit tests")
	flag.StringVar(&core, "core", "./test/integration", "the packages of the core tests")
	flag.StringVar(&o.coreRun, "core-run", ".", "which of their tests: go test -run")
	flag.DurationVar(&o.timeout, "timeout", 5*time.Minute, "of one package's tests; four times as long for those of core")
	flag.BoolVar(&o.resume, "resume", false, "do not run those again that were killed before")
	flag.Parse()
	o.packages, o.core, o.patterns = strings.Fields(packages), strings.Fields(core), flag.Args()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := o.run(ctx, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (o *options) run(ctx context.Context, out io.Writer) error {
	if o.tier != "unit" && o.tier != "core" {
		return fmt.Errorf("no tier %q: unit or core", o.tier)
	}
	all, err := mutants.Load(o.dir)
	if err != nil {
		return err
	}
	all, err = chosen(all, o.patterns)
	if err != nil {
		return err
	}
	known, err := loadResults(filepath.Join(o.out, "mutants.json"))
	if err != nil {
		return err
	}
	graph, err := listPackages(ctx, o.packages)
	if err != nil {
		return err
	}
	r := &runner{options: o, graph: graph, passes: map[string]bool{}}
	var results []result
	for i := range all {
		m := &all[i]
		res, ok := known[m.Name]
		if !o.resume || !ok || res.Outcome != killed || res.Patch != m.Text {
			if res, err = r.test(ctx, m); err != nil {
				return fmt.Errorf("%s: %w", m.Name, err)
			}
			known[m.Name] = res
			if err := saveResults(filepath.Join(o.out, "mutants.json"), known); err != nil {
				return err
			}
		}
		results = append(results, res)
		fmt.Fprintf(out, "%-58s %s, %.0f s\n", m.Name, res.text(), res.Seconds)
	}
	return report(out, filepath.Join(o.out, "mutants.md"), all, results)
}

// chosen returns the mutants that match one of the patterns; all without a pattern.
func chosen(all []mutants.Mutant, patterns []string) ([]mutants.Mutant, error) {
	if len(patterns) == 0 {
		return all, nil
	}
	var out []mutants.Mutant
	for _, m := range all {
		ok := slices.ContainsFunc(patterns, func(p string) bool {
			ok, err := path.Match(strings.TrimSuffix(p, ".patch"), m.Name)
			return ok && err == nil
		})
		if ok {
			out = append(out, m)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no mutant is named like %s", strings.Join(patterns, " or "))
	}
	return out, nil
}
