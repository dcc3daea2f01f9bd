// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

const module = "github.com/nvtopo/nvtopo/"

// final are the marks in the output of failures that no second try excuses, with the words that report
// them. The first mark is testkit.ViolationPrefix.
var final = []struct{ mark, what string }{
	{"VIOLATION: ", "broke an invariant"},
	{"WARNING: DATA RACE", "has a data race"},
	{"panic: ", "panicked"},
	{"fatal error: ", "ended its process"},
}

// judgeFile writes the first output of each test that passed at a later try into a folder, and returns
// whether a failure is final although a later try passed.
func judgeFile(file, flakes string, w io.Writer) (failed bool, err error) {
	r, err := readRecord(file)
	if err != nil {
		return false, err
	}
	part := strings.TrimSuffix(filepath.Base(file), ".json")
	for _, name := range r.again() {
		tries := r.tries[name]
		if tries[len(tries)-1].failed {
			continue // gotestsum fails the run
		}
		first := filepath.Join(flakes, part+"-"+path.Base(name.pkg)+"-"+name.name+".txt")
		if err := write(first, tries[0].output.String()); err != nil {
			return failed, err
		}
		fmt.Fprintf(w, "%s passed at try %d only; the output of the first is in %s\n", name, len(tries), first)
	}
	for _, finding := range findings(r) {
		failed = true
		fmt.Fprintln(w, finding)
	}
	return failed, nil
}

// findings reports each test and package that failed in a way that no second try excuses.
func findings(r *record) []string {
	var said []string
	for _, pkg := range r.broken {
		said = append(said, strings.TrimPrefix(pkg, module)+" failed, and none of its tests did: a second try does not count")
	}
	for name, tries := range r.tries {
		for _, t := range tries {
			if !t.ended {
				said = append(said, fmt.Sprintf("%s did not end, so that tests after it may not have run: a second try does not count", name))
			}
			if what := finalIn(t.output.String()); t.failed && what != "" {
				said = append(said, fmt.Sprintf("%s %s: a second try does not count", name, what))
			}
		}
	}
	slices.Sort(said)
	return slices.Compact(said)
}

// finalIn returns the report for the first line of an output that has a mark; empty if none has.
func finalIn(output string) string {
	for line := range strings.Lines(output) {
		for _, f := range final {
			if line := strings.TrimSpace(line); strings.HasPrefix(line, f.mark) || f.mark == final[0].mark && strings.Contains(line, f.mark) {
				return f.what
			}
		}
	}
	return ""
}

func write(file, text string) error {
	err := os.MkdirAll(filepath.Dir(file), 0o755)
	if err == nil {
		err = os.WriteFile(file, []byte(text), 0o644)
	}
	if err != nil {
		return fmt.Errorf("keep the output of a test: %w", err)
	}
	return nil
}
