// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"testing"
)

var (
	item       = regexp.MustCompile(`(?m)^\| P(\d+) \| .+ \| .+ \| .*\|$`)
	sourcePath = regexp.MustCompile("`((?:cmd|docs|internal|manifests|pkg|test)/[A-Za-z0-9_./-]+)`")
	testName   = regexp.MustCompile("`(Test[A-Za-z0-9]+)`")
	testFunc   = regexp.MustCompile(`(?m)^func (Test[A-Za-z0-9]+)\(t \*testing\.T\)`)
)

// TestPoolTable: the table of pools is whole: it has all items in their order, and the files and
// tests that it names are there.
func TestPoolTable(t *testing.T) {
	const items = 46
	text, err := fs.ReadFile(repository(), "docs/pools-requirements.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := item.FindAllStringSubmatch(string(text), -1)
	for i, row := range rows {
		if row[1] != strconv.Itoa(i+1) {
			t.Fatalf("row %d is of P%s", i+1, row[1])
		}
	}
	if len(rows) != items {
		t.Errorf("%d rows, want %d", len(rows), items)
	}
	for _, path := range named(sourcePath, text) {
		if _, err := fs.Stat(repository(), path); err != nil {
			t.Errorf("docs/pools-requirements.md: no file %s", path)
		}
	}
	tests := named(testName, text)
	if len(tests) < items {
		t.Errorf("only %d tests", len(tests))
	}
	known := testsOf(t, repository())
	for _, test := range tests {
		if !known[test] {
			t.Errorf("docs/pools-requirements.md: no test %s", test)
		}
	}
}

// named are the first submatches of a pattern, each once.
func named(pattern *regexp.Regexp, text []byte) []string {
	var out []string
	for _, m := range pattern.FindAllSubmatch(text, -1) {
		out = append(out, string(m[1]))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// testsOf are the names of all tests of pools, and of manifests and alerts.
func testsOf(t *testing.T, repo fs.FS) map[string]bool {
	t.Helper()
	known := map[string]bool{}
	for _, pattern := range []string{"pkg/pools/*/*_test.go", "test/*/*_test.go", "manifests/*_test.go"} {
		files, err := fs.Glob(repo, pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := fs.ReadFile(repo, file)
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range named(testFunc, text) {
				known[name] = true
			}
		}
	}
	return known
}
