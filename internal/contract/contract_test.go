// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestChanges(t *testing.T) {
	tests := map[string]struct {
		before, after string
		want          []string
	}{
		"the same":                         {"a\nb", "a\nb", nil},
		"a line more":                      {"a\nc", "a\nb\nc", []string{"+ b"}},
		"a line less":                      {"a\nb\nc", "a\nc", []string{"- b"}},
		"another line, below its heading":  {"# one\na\n# two\nb", "# one\na\n# two\nc", []string{"  # two", "- b", "+ c"}},
		"another order":                    {"a\nb", "b\na", []string{"- a", "+ a"}},
		"two changes below their headings": {"# one\na\n# two\nb", "# one\nx\n# two\ny", []string{"  # one", "- a", "+ x", "  # two", "- b", "+ y"}},
		"everything is new":                {"", "a\nb", []string{"+ a", "+ b"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Changes(lines(tc.before), lines(tc.after))); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestFields(t *testing.T) {
	object := map[string]any{
		"metadata": map[string]any{"name": "x", "annotations": map[string]any{"nvtopo.dev/version": "2"}},
		"args":     []any{"a", "b"}, "none": map[string]any{}, "count": 3.0,
		"containers": []any{map[string]any{"name": "main", "image": "i"}},
		"rules":      []any{map[string]any{"verbs": []any{"get", ""}}, map[string]any{"verbs": []any{"list"}}},
		"text":       "one\n\ntwo\n",
	}
	want := []string{
		"args: [a, b]", "containers[main].image: i", "containers[main].name: main", "count: 3",
		"metadata.annotations[nvtopo.dev/version]: 2", "metadata.name: x", "none: {}",
		`rules[0].verbs: [get, ""]`, "rules[1].verbs: [list]", "text: |", "  | one", "  |", "  | two",
	}
	if diff := cmp.Diff(want, Fields(object)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestObjects(t *testing.T) {
	object := func(name, mode string) map[string]any {
		return map[string]any{"kind": "Thing", "metadata": map[string]any{"name": name, "namespace": "n"}, "mode": mode}
	}
	sets := make([]Objects, 2)
	for i, all := range [][]map[string]any{
		{object("a", "x"), object("b", "x"), object("c", "x"), object("nvtopo-scheduler-config-7b9k2m4c5d", "x")},
		{object("a", "x"), object("b", "y"), object("d", "x"), object("nvtopo-scheduler-config-0123456789", "x")},
	} {
		sets[i] = Objects{}
		for _, o := range all {
			if err := sets[i].Add(o); err != nil {
				t.Fatal(err)
			}
		}
	}
	want := "# without Thing n/c\n# differs: Thing n/b\n- mode: x\n+ mode: y\n# also Thing n/d\nkind: Thing\nmetadata.name: d\nmetadata.namespace: n\nmode: x\n"
	if diff := cmp.Diff(want, sets[1].TextAgainst(sets[0])); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if err := sets[0].Add(object("a", "z")); err == nil {
		t.Error("a second object of the same name is taken")
	}
}

// judged is a test that may fail.
type judged struct {
	testing.TB
	said []string
}

func (j *judged) Helper() {}
func (j *judged) Errorf(format string, args ...any) {
	j.said = append(j.said, fmt.Sprintf(format, args...))
}

func TestCompare(t *testing.T) {
	folder := t.TempDir()
	run := func(got string, write bool) string {
		j := &judged{TB: t}
		compare(j, folder, "sub/a.txt", got, write)
		return strings.Join(j.said, "\n")
	}
	if said := run("a\n", false); !strings.Contains(said, "+ a") || !strings.Contains(said, "make contract") {
		t.Errorf("a file that is not there: %q", said)
	}
	if said := run("a\n", true); said != "" {
		t.Errorf("writing: %q", said)
	}
	if text, err := os.ReadFile(filepath.Join(folder, "sub", "a.txt")); err != nil || string(text) != "a\n" {
		t.Errorf("written: %q, %v", text, err)
	}
	if said := run("a\n", false); said != "" {
		t.Errorf("what was written: %q", said)
	}
	if said := run("b\n", false); !strings.Contains(said, "- a\n+ b") {
		t.Errorf("another text: %q", said)
	}
	for _, write := range []bool{false, true} {
		if said := run("\n", write); !strings.Contains(said, "would be empty") {
			t.Errorf("no text at all: %q", said)
		}
	}
}
