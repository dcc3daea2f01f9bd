// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nvtopo/nvtopo/test/mutants"
)

// outcome is the result category of a mutant.
type outcome string

const (
	killed     outcome = "killed"   // a test failed
	survived   outcome = "SURVIVED" // all tests passed
	timedOut   outcome = "TIMED OUT"
	notBuilt   outcome = "DOES NOT COMPILE"
	failedElse outcome = "FAILED WITHOUT A TEST" // for example TestMain ended the process
)

// result is the result of one mutant.
type result struct {
	Patch   string   // its text, which identifies the mutant of the result
	Outcome outcome  // anything but killed needs a person's attention
	Tests   []string // that failed, without their subtests
	Package string   // with the deciding tests
	Tier    string
	Seconds float64
}

func (r *result) text() string {
	switch r.Outcome {
	case killed:
		return fmt.Sprintf("killed by %s (%s, %s)", strings.Join(r.Tests, ", "), r.Package, r.Tier)
	case survived:
		return fmt.Sprintf("%s all tests of %s", r.Outcome, r.Tier)
	default:
		return fmt.Sprintf("%s in %s (%s)", r.Outcome, r.Package, r.Tier)
	}
}

type runner struct {
	*options
	graph  map[string]*listed
	passes map[string]bool // packages whose tests pass without a mutant
}

// test runs the mutated package's own tests, then those of its importers, until some fail.
func (r *runner) test(ctx context.Context, m *mutants.Mutant) (result, error) {
	began := time.Now()
	dir, err := os.MkdirTemp("", "mutant-")
	if err != nil {
		return result{}, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	overlay, own, err := r.overlay(m, dir)
	if err != nil {
		return result{}, err
	}
	res := result{Patch: m.Text, Outcome: survived, Tier: "unit"}
	ask := func(packages []string, t *tests) error {
		mutated := *t
		mutated.overlay = overlay
		for _, p := range packages {
			if err := r.mustPass(ctx, p, t); err != nil {
				return err
			}
			if t.core && mutated.bin == "" { // the tests have built the others before
				if mutated.bin, err = programs(ctx, dir, overlay, own); err != nil {
					return err
				}
			}
			res.Package = p
			if res.Outcome, res.Tests, _, err = mutated.goTest(ctx, p); err != nil || res.Outcome != survived {
				return err
			}
		}
		return nil
	}
	err = ask(nearest(r.graph, own), &tests{timeout: r.timeout})
	if err == nil && res.Outcome == survived && r.tier == "core" {
		res.Tier = "core"
		err = ask(r.core, &tests{timeout: 4 * r.timeout, run: r.coreRun, core: true})
	}
	res.Package = short(res.Package)
	res.Seconds = time.Since(began).Seconds()
	return res, err
}

// overlay writes the mutated files and go's list of them, and returns the path of the list and the import
// path of the mutated package.
func (r *runner) overlay(m *mutants.Mutant, dir string) (file, own string, err error) {
	changed, err := m.Apply(".")
	if err != nil {
		return "", "", err
	}
	replace := map[string]string{}
	for path, text := range changed {
		original, err := filepath.Abs(path)
		if err != nil {
			return "", "", err
		}
		replace[original] = filepath.Join(dir, strings.ReplaceAll(path, "/", "_"))
		if err := os.WriteFile(replace[original], []byte(text), 0o600); err != nil {
			return "", "", err
		}
		for path, p := range r.graph {
			if p.Dir == filepath.Dir(original) {
				own = path
			}
		}
	}
	if own == "" {
		return "", "", errors.New("its package is none of -packages")
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", "", err
	}
	file = filepath.Join(dir, "overlay.json")
	return file, own, os.WriteFile(file, text, 0o600)
}

// mustPass returns an error if tests fail without any mutant: they would be taken to kill each.
func (r *runner) mustPass(ctx context.Context, p string, t *tests) error {
	if r.passes[p] {
		return nil
	}
	what, failed, output, err := t.goTest(ctx, p)
	switch {
	case err != nil:
		return err
	case what != survived:
		return fmt.Errorf("the tests of %s do not pass without it: %s %s\n%s", p, what, strings.Join(failed, ", "), output)
	}
	r.passes[p] = true
	return nil
}
