// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// table prints a line for each part, then why parts were left out and which tests passed at a second try.
// It returns whether a part failed.
func (r *runner) table(wall time.Duration) (failed bool) {
	fmt.Fprintln(r.stdout)
	fmt.Fprintf(r.stdout, "%-28s %-9s %7s %7s %7s %13s\n", "part", "result", "wall s", "CPU s", "tests", "second tries")
	const row = "%-28s %-9s %7.0f %7.0f %7s %13s\n"
	var reasons []string
	var all time.Duration
	for _, p := range r.parts {
		result := "ok"
		reason := r.leftOut(p.name)
		tests, again := r.counts(p.name)
		switch {
		case p.err != nil:
			result, failed = "FAILED", true
		case tests == "0" && reason == "":
			result, failed = "NO TESTS", true
		case reason != "":
			result = "left out"
			reasons = append(reasons, p.name+" was left out: "+reason)
		}
		name := p.name
		if p.beside {
			name += ", beside"
		}
		all += p.cpu
		fmt.Fprintf(r.stdout, row, name, result, p.wall.Seconds(), p.cpu.Seconds(), tests, again)
	}
	fmt.Fprintf(r.stdout, row, "all", "", wall.Seconds(), all.Seconds(), "", "")
	for _, p := range r.parts {
		if p.err != nil {
			fmt.Fprintf(r.stdout, "%s failed: %s\n", p.name, p.log)
		}
	}
	if files, err := filepath.Glob(filepath.Join(r.out, flakeFolder, "*")); err == nil {
		for _, f := range files {
			fmt.Fprintln(r.stdout, "passed at a second try only:", f)
		}
	}
	for _, reason := range reasons {
		fmt.Fprintln(r.stdout, reason)
	}
	return failed
}

// leftOut returns why a part, or some of it, was left out; empty if it was not.
func (r *runner) leftOut(name string) string {
	text, err := os.ReadFile(filepath.Join(r.out, leftOutFolder, name))
	if err != nil {
		return "" // no such file: nothing was left out
	}
	return strings.TrimSpace(string(text))
}

// counts returns the number of tests that a part ran and of its second tries, from gotestsum's record;
// "-" for a part without a record. A part whose tests were all skipped fails.
func (r *runner) counts(name string) (tests, again string) {
	files, _ := filepath.Glob(filepath.Join(r.out, testFolder, name+".json"))
	more, _ := filepath.Glob(filepath.Join(r.out, testFolder, name+".*.json"))
	ran, second := 0, 0
	for _, file := range append(files, more...) {
		if rec, err := readRecord(file); err == nil {
			ran, second = ran+rec.tests, second+rec.secondTries()
		}
	}
	if len(files)+len(more) == 0 {
		return "-", "-"
	}
	return strconv.Itoa(ran), strconv.Itoa(second)
}
