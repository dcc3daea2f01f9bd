// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nvtopo/nvtopo/test/mutants"
)

// outcome is what became of a mutant.
type outcome string

const (
	killed     outcome = "killed"   // a test failed
	survived   outcome = "SURVIVED" // all tests passed
	timedOut   outcome = "TIMED OUT"
	notBuilt   outcome = "DOES NOT COMPILE"
	failedElse outcome = "FAILED WITHOUT A TEST" // as when TestMain ends the process
)

// result is what is known of one mutant.
type result struct {
	Patch   string   // its text, by which a result is known to be of it
	Outcome outcome  // anything but killed is for a person to look at
	Tests   []string // that failed, without their subtests
	Package string   // whose tests decided
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
	passes map[string]bool // packages whose tests pass without any mutant
}

// test runs the mutated package's own tests, then those of who imports it, until some fail.
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
	ask := func(p, run string, timeout time.Duration) error {
		if err := r.mustPass(ctx, p, run, timeout); err != nil {
			return err
		}
		res.Package = p
		res.Outcome, res.Tests, _, err = goTest(ctx, p, run, timeout, overlay)
		return err
	}
	for _, p := range nearest(r.graph, own) {
		if err = ask(p, "", r.timeout); err != nil || res.Outcome != survived {
			break
		}
	}
	if err == nil && res.Outcome == survived && r.tier == "core" {
		res.Tier = "core"
		for _, p := range r.core {
			if err = ask(p, r.coreRun, 4*r.timeout); err != nil || res.Outcome != survived {
				break
			}
		}
	}
	res.Package = short(res.Package)
	res.Seconds = time.Since(began).Seconds()
	return res, err
}

// overlay writes the mutated files and go's list of them, and returns where that is, and the import
// path of their package.
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
		return "", "", fmt.Errorf("its package is none of -packages")
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", "", err
	}
	file = filepath.Join(dir, "overlay.json")
	return file, own, os.WriteFile(file, text, 0o600)
}

// mustPass fails if tests fail without any mutant: they would be taken to kill each.
func (r *runner) mustPass(ctx context.Context, p, run string, timeout time.Duration) error {
	if r.passes[p] {
		return nil
	}
	what, tests, output, err := goTest(ctx, p, run, timeout, "")
	switch {
	case err != nil:
		return err
	case what != survived:
		return fmt.Errorf("the tests of %s do not pass without it: %s %s\n%s", p, what, strings.Join(tests, ", "), output)
	}
	r.passes[p] = true
	return nil
}

// event is a line of go test -json.
type event struct {
	Action, Test, Output string
}

// goTest runs a package's tests. An empty overlay is none.
func goTest(ctx context.Context, p, run string, timeout time.Duration, overlay string) (what outcome, tests []string, output string, err error) {
	args := []string{"test", "-json", "-vet=off", "-timeout", timeout.String()}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	if run != "" {
		args = append(args, "-run", run)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, p)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	failed := cmd.Run()
	if ctx.Err() != nil {
		return "", nil, "", ctx.Err()
	}
	var text strings.Builder
	built, late := true, false
	for lines := bufio.NewReader(&stdout); ; {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			break
		}
		e := event{}
		if json.Unmarshal(line, &e) != nil {
			continue
		}
		text.WriteString(e.Output)
		built = built && e.Action != "build-fail"
		late = late || strings.HasPrefix(e.Output, "panic: test timed out after")
		name, _, _ := strings.Cut(e.Test, "/")
		if e.Action == "fail" && name != "" && !slices.Contains(tests, name) {
			tests = append(tests, name)
		}
	}
	slices.Sort(tests)
	output = text.String() + stderr.String()
	switch {
	case failed == nil:
		return survived, nil, output, nil
	case !built:
		return notBuilt, nil, output, nil
	case late: // the test that ran then counts as failed
		return timedOut, tests, output, nil
	case len(tests) > 0:
		return killed, tests, output, nil
	}
	return failedElse, nil, output, nil
}

// short is an import path without that of the module.
func short(p string) string { return strings.TrimPrefix(p, "github.com/nvtopo/nvtopo/") }
