// SPDX-License-Identifier: Apache-2.0

package mutants

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var fileName = regexp.MustCompile(`^([a-z]+)-\d\d-[a-z0-9-]+$`)

// TestPatches checks that each patch applies to the current tree, stays within the folder and package of
// its name, and results in valid Go.
func TestPatches(t *testing.T) {
	all, err := Load(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		t.Run(m.Name, func(t *testing.T) {
			name := fileName.FindStringSubmatch(m.Name)
			if name == nil {
				t.Fatalf("the name is not PACKAGE-NN-SUBJECT")
			}
			changed, err := m.Apply("../..")
			if err != nil {
				t.Fatalf("move the mutant with the code that it edits: %v", err)
			}
			folder := ""
			for path, text := range changed {
				if !strings.HasPrefix(path, "pkg/") || !strings.Contains(path, "/"+name[1]+"/") || strings.HasSuffix(path, "_test.go") {
					t.Errorf("it edits %s", path)
				}
				if folder != "" && folder != filepath.Dir(path) {
					t.Errorf("it edits %s and %s", folder, filepath.Dir(path))
				}
				folder = filepath.Dir(path)
				if _, err := parser.ParseFile(token.NewFileSet(), path, text, parser.SkipObjectResolution); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestApply applies patches to a file of five lines: a, b, c, b and c.
func TestApply(t *testing.T) {
	const head = "# what: it is wrong\n# for c.\n--- a/f\n+++ b/f\n"
	tests := map[string]struct {
		patch     string
		want      string
		wantError string
	}{
		"at its line":                      {head + "@@ -4,2 +4,2 @@\n b\n-c\n+d\n", "a\nb\nc\nb\nd\n", ""},
		"at the only place, moved":         {head + "@@ -9,2 +9,1 @@\n a\n-b\n", "a\nc\nb\nc\n", ""},
		"two places, the second moved too": {head + "@@ -1,1 +1,2 @@\n a\n+x\n@@ -4,1 +5,1 @@\n-b\n+y\n", "a\nx\nb\nc\ny\nc\n", ""},
		"not at its line, and several":     {head + "@@ -3,1 +3,1 @@\n-b\n+d\n", "", "f:3: these lines are at 2 places in the file"},
		"nowhere":                          {head + "@@ -1,1 +1,1 @@\n-z\n+d\n", "", "f:1: these lines are nowhere in the file"},
		"nothing changes":                  {head + "@@ -1,1 +1,1 @@\n-a\n+a\n", "", "f is not changed"},
		"no sentence":                      {"--- a/f\n+++ b/f\n@@ -1,1 +1,1 @@\n-a\n+b\n", "", `it does not begin with "# what: " and a sentence`},
		"no file":                          {"# what: nothing.\n", "", "it edits nothing"},
		"not a diff":                       {head + "@@ -1,1 +1,1 @@\n-a\n\\ no newline\n", "", `line 7: "\\ no newline" is not of a unified diff`},
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte("a\nb\nc\nb\nc\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			m, err := Parse("name", tc.patch)
			var changed map[string]string
			if err == nil {
				changed, err = m.Apply(dir)
			}
			got := ""
			if err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff([]string{tc.want, tc.wantError}, []string{changed["f"], got}); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			if err == nil && m.What != "it is wrong for c." {
				t.Errorf("what is wrong: %q", m.What)
			}
		})
	}
}
