// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

// TestTemplates fails if a committed template differs from this program's output.
func TestTemplates(t *testing.T) {
	folder := filepath.Join("..", "..", "charts", "nvtopo", "templates")
	made, err := templates(os.DirFS(filepath.Join("..", "..", "manifests")))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range made {
		got, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("charts/nvtopo/templates/%s is stale: run make chart", name)
		}
	}
	old, err := generated(os.DirFS(folder))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range old {
		if made[name] == nil {
			t.Errorf("no manifest is made into charts/nvtopo/templates/%s: run make chart", name)
		}
	}
}

const manifest = `# Why.
kind: Pod
spec:
  # One.
  containers:
  - name: main # the only one
    args:
    - --mode=repair
    - --other
    resources:
      limits:
        memory: 1Gi
  nodeSelector: {a: b}
`

// TestEdits checks the place of an edit's text, and that all other text stays.
func TestEdits(t *testing.T) {
	tests := map[string]struct {
		edits []edit
		want  string // replaced text
		than  string
	}{
		"a value on one line":      {[]edit{{path: "spec/nodeSelector", text: "nodeSelector: X"}}, "  nodeSelector: {a: b}\n", "  nodeSelector: X\n"},
		"a value of several lines": {[]edit{{path: "spec/containers/0/resources", text: "resources:\n  X"}}, "    resources:\n      limits:\n        memory: 1Gi\n", "    resources:\n      X\n"},
		"an item of a list":        {[]edit{{path: "spec/containers/0/args/0", text: "- X"}}, "    - --mode=repair\n", "    - X\n"},
		"after the last of a list": {[]edit{{path: "spec/containers/0/args/-", where: after, text: "- X"}}, "    - --other\n", "    - --other\n    - X\n"},
		"before the first":         {[]edit{{path: "spec/containers/0/args/0", where: before, text: "- X"}}, "    - --mode=repair\n", "    - X\n    - --mode=repair\n"},
		"after a field":            {[]edit{{path: "kind", where: after, text: "X: 1"}}, "kind: Pod\n", "kind: Pod\nX: 1\n"},
		"before, in place of and after": {[]edit{
			{path: "spec/containers/0/args/-", where: after, text: "- C"},
			{path: "spec/containers/0/args/1", text: "- B"},
			{path: "spec/containers/0/args/-", where: before, text: "- A"},
			{path: "spec/containers/0/args/-", where: after, text: "- D"},
		}, "    - --other\n", "    - A\n    - B\n    - C\n    - D\n"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := apply(manifest, tc.edits)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(strings.Replace(manifest, tc.want, tc.than, 1), got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// TestEditErrors checks that edits of a changed manifest, in which their path is missing, are errors.
func TestEditErrors(t *testing.T) {
	for name, tc := range map[string]struct{ path, text, want string }{
		"a field that is not there": {"spec/affinity", manifest, "spec/affinity: no field affinity"},
		"an item that is not there": {"spec/containers/1", manifest, "no item 1"},
		"a field of a word":         {"kind/name", manifest, "nothing has a field name"},
		"text of several lines":     {"data", "data: |\n  a\n  b\n", "its lines cannot be counted"},
		"no YAML":                   {"a", "a: [\n", "read:"},
		"nothing":                   {"a", "# only a comment\n", "no document"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := apply(tc.text, []edit{{path: tc.path, text: "x"}}); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want %q", err, tc.want)
			}
		})
	}
	twice := []edit{{path: "kind", text: "a"}, {path: "kind", text: "b"}}
	if _, err := apply(manifest, twice); err == nil || !strings.Contains(err.Error(), "two edits replace line 2") {
		t.Errorf("two edits of one line: %v", err)
	}
}

// TestComponents checks that a component's operation becomes an edit under a value, or an error if it
// cannot.
func TestComponents(t *testing.T) {
	file := func(operations string) fstest.MapFS {
		text := "patches:\n- patch: |-\n    " + strings.ReplaceAll(operations, "\n", "\n    ") + "\n"
		return fstest.MapFS{"components/c/kustomization.yaml": {Data: []byte(text)}}
	}
	got, err := optional(file("- {op: add, path: /spec/args/-, value: --x}\n- {op: add, path: /spec/volumes/0, value: {name: a, hostPath: {path: /a}}}"), "c", ".Values.x")
	if err != nil {
		t.Fatal(err)
	}
	want := []edit{
		{path: "spec/args/-", where: after, text: "{{- if .Values.x }}\n- --x\n{{- end }}"},
		{path: "spec/volumes/0", where: before, text: "{{- if .Values.x }}\n- {name: a, hostPath: {path: /a}}\n{{- end }}"},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(edit{})); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	for operations, want := range map[string]string{
		"- {op: remove, path: /spec/args/0}":            "operation remove is not add",
		"- {op: add, path: /spec/args/3, value: --x}":   "/spec/args/3 is neither the beginning nor the end of a list",
		"- {op: add, path: /spec/hostPID, value: true}": "/spec/hostPID is neither the beginning nor the end of a list",
	} {
		if _, err := optional(file(operations), "c", ".Values.x"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", operations, err, want)
		}
	}
}
