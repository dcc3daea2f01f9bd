// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/test/mutants"
)

// module is a small module: far imports near, and only far's tests check the result for 2.
var module = map[string]string{
	"go.mod":       "module m\n\ngo 1.26\n",
	"near/near.go": "package near\n\n// Twice is it.\nfunc Twice(n int) int {\n\treturn 2 * n\n}\n",
	"near/near_test.go": "package near\n\nimport \"testing\"\n\nfunc TestTwice(t *testing.T) {\n" +
		"\tt.Run(\"of one\", func(t *testing.T) {\n\t\tif Twice(1) != 2 {\n\t\t\tt.Error(\"wrong\")\n\t\t}\n\t})\n}\n",
	"far/far.go":      "package far\n\nimport \"m/near\"\n\n// Four is it.\nfunc Four() int { return near.Twice(2) }\n",
	"far/far_test.go": "package far\n\nimport \"testing\"\n\nfunc TestFour(t *testing.T) {\n\tif Four() != 4 {\n\t\tt.Error(\"wrong\")\n\t}\n}\n",
	"other/other.go":  "package other\n",
}

// mutant returns a patch with another statement instead of the doubling.
func mutant(instead string) string {
	return "# what: a number is not doubled.\n--- a/near/near.go\n+++ b/near/near.go\n@@ -5,1 +5,1 @@\n-\treturn 2 * n\n+\t" + instead + "\n"
}

func writeFiles(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRun runs all mutants of a small module, twice.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	writeFiles(t, dir, module)
	writeFiles(t, filepath.Join(dir, "patches"), map[string]string{
		"1-own.patch":      mutant("return 3 * n"),
		"2-imports.patch":  mutant("return max(2, 3*(n-1))"),
		"3-survives.patch": mutant("return 2 * n % 5"),
		"4-no-go.patch":    mutant("return nothing"),
		"5-ends.patch":     mutant("panic(n)"),
	})
	t.Chdir(dir)
	o := options{dir: "patches", out: "out", tier: "unit", packages: []string{"./..."}, timeout: 5 * time.Minute}
	var out bytes.Buffer
	if err := o.run(t.Context(), &out); !errors.Is(err, errSurvived) {
		t.Errorf("error %v, want %v", err, errSurvived)
	}
	seconds := regexp.MustCompile(` +|, \d+ s`)
	want := strings.ReplaceAll(`1-own killed by TestTwice (m/near, unit)
2-imports killed by TestFour (m/far, unit)
3-survives SURVIVED all tests of unit
4-no-go DOES NOT COMPILE in m/near (unit)
5-ends killed by TestTwice (m/near, unit)
3 of 5 killed
`, " ", "_")
	got := strings.ReplaceAll(seconds.ReplaceAllStringFunc(out.String(), func(s string) string {
		if strings.HasPrefix(s, ",") {
			return ""
		}
		return " "
	}), " ", "_")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	table, err := os.ReadFile("out/mutants.md")
	if err != nil || !strings.Contains(string(table), "| 2-imports | a number is not doubled. | TestFour | m/far | unit |") {
		t.Errorf("table %s, error %v", table, err)
	}

	// Killed mutants are not run again: the test file of near is now empty.
	o.resume, o.patterns = true, []string{"1-*", "2-imports.patch"}
	writeFiles(t, dir, map[string]string{"near/near_test.go": "package near\n"})
	out.Reset()
	if err := o.run(t.Context(), &out); err != nil || !strings.HasSuffix(out.String(), "2 of 2 killed\n") {
		t.Errorf("resumed: %v\n%s", err, out.String())
	}
	o.patterns = []string{"none"}
	if err := o.run(t.Context(), &out); err == nil {
		t.Error("a pattern of no mutant was taken")
	}
}

// TestNotKilled checks a test that does not end, and one that also fails without a mutant.
func TestNotKilled(t *testing.T) {
	dir := t.TempDir()
	writeFiles(t, dir, module)
	t.Chdir(dir)
	graph, err := listPackages(t.Context(), []string{"./..."})
	if err != nil {
		t.Fatal(err)
	}
	test := func(instead string, timeout time.Duration, passes ...string) (result, error) {
		t.Helper()
		m, err := mutants.Parse("1-own", mutant(instead))
		if err != nil {
			t.Fatal(err)
		}
		r := &runner{options: &options{timeout: timeout}, graph: graph, passes: map[string]bool{}}
		for _, p := range passes {
			r.passes[p] = true
		}
		return r.test(t.Context(), &m)
	}
	if got, err := test("select {}", time.Second, "m/near"); err != nil || got.Outcome != timedOut {
		t.Errorf("a mutant that never ends: %s, %v", got.text(), err)
	}
	writeFiles(t, dir, map[string]string{"near/near_test.go": strings.ReplaceAll(module["near/near_test.go"], "!= 2", "!= 5")})
	if got, err := test("return 3 * n", time.Minute); err == nil || !strings.Contains(err.Error(), "do not pass without it") {
		t.Errorf("tests that fail anyway: %s, %v", got.text(), err)
	}
}

// TestNearest orders a chain d → c → b → a of imports, where d has no tests, tests of e import d and a,
// and x imports nothing.
func TestNearest(t *testing.T) {
	some := []string{"some_test.go"}
	all := map[string]*listed{
		"a": {TestGoFiles: some},
		"b": {TestGoFiles: some, Imports: []string{"a"}},
		"c": {XTestGoFiles: some, Imports: []string{"b"}},
		"d": {Imports: []string{"c"}},
		"e": {XTestGoFiles: some, XTestImports: []string{"d", "a"}},
		"x": {TestGoFiles: some},
	}
	tests := map[string]struct {
		of   string
		want []string
	}{
		"the first one":     {"a", []string{"a", "b", "e", "c"}},
		"one in the middle": {"b", []string{"b", "c", "e"}},
		"one without tests": {"d", []string{"e"}},
		"the last one":      {"x", []string{"x"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, nearest(all, tc.of)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}
