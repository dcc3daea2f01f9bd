// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// event is one line of the output of `go test -json` (go doc test2json).
type event struct {
	Action  string
	Package string
	Test    string // empty for a whole package
	Output  string
}

// testName is a test of a package. A subtest's name is that of its test, a slash and its own.
type testName struct{ pkg, name string }

func (n testName) String() string { return strings.TrimPrefix(n.pkg, module) + " " + n.name }

// root returns the test that a subtest belongs to.
func (n testName) root() testName {
	name, _, _ := strings.Cut(n.name, "/")
	return testName{n.pkg, name}
}

// try is one run of a test and its subtests.
type try struct {
	failed, ended bool
	output        strings.Builder
}

// record is gotestsum's record of a run of go test, second tries included.
type record struct {
	tests int // tests and subtests that ran to an end, without second tries and skipped ones
	// tries has the runs of each test that is not a subtest, the first one first.
	tries map[testName][]*try
	// broken are the packages that failed without a failed test: their TestMain failed, or they could not be
	// compiled.
	broken []string
	// failures counts the tests of a package that failed in its run.
	failures map[string]int
}

// readRecord reads the file that gotestsum --jsonfile writes. Lines that are not JSON, such as a
// compiler's message, are skipped: gotestsum has failed the run for them.
func readRecord(path string) (*record, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read a record of tests: %w", err)
	}
	defer f.Close() //nolint:errcheck // it was only read
	return parseRecord(f)
}

func parseRecord(from io.Reader) (*record, error) {
	r := &record{tries: map[testName][]*try{}, failures: map[string]int{}}
	ended := map[testName]bool{}
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadBytes('\n')
		var e event
		if json.Unmarshal(line, &e) == nil {
			r.add(&e, ended)
		}
		if errors.Is(err, io.EOF) {
			return r, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read a record of tests: %w", err)
		}
	}
}

func (r *record) add(e *event, ended map[testName]bool) {
	if e.Test == "" {
		r.addPackage(e)
		return
	}
	test := testName{e.Package, e.Test}
	root := test.root()
	if e.Action == "run" && test == root {
		r.tries[root] = append(r.tries[root], &try{})
	}
	tries := r.tries[root]
	if len(tries) == 0 {
		return // the record begins in the middle of a test
	}
	last := tries[len(tries)-1]
	last.output.WriteString(e.Output)
	switch e.Action {
	case "pass", "fail":
		if !ended[test] {
			ended[test] = true
			r.tests++
		}
		if e.Action == "fail" {
			last.failed = true
			r.failures[e.Package]++
		}
		last.ended = last.ended || test == root
	case "skip":
		last.ended = last.ended || test == root
	}
}

func (r *record) addPackage(e *event) {
	switch e.Action {
	case "start":
		r.failures[e.Package] = 0
	case "fail":
		if r.failures[e.Package] == 0 {
			r.broken = append(r.broken, e.Package)
		}
	}
}

// again returns the tests that were tried more than once, sorted.
func (r *record) again() []testName {
	var names []testName
	for name, tries := range r.tries {
		if len(tries) > 1 {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b testName) int { return strings.Compare(a.String(), b.String()) })
	return names
}

// secondTries returns the number of runs of tests beyond the first ones.
func (r *record) secondTries() int {
	n := 0
	for _, tries := range r.tries {
		n += len(tries) - 1
	}
	return n
}
