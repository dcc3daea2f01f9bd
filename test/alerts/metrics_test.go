// SPDX-License-Identifier: Apache-2.0

package alerts

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/internal/testkit"
)

// TestRuleMetrics checks that the metrics of rules exist: a rule on a missing metric would never fire.
func TestRuleMetrics(t *testing.T) {
	ours := literals(t, filepath.Join(testkit.Repository(), "pkg"))
	for name, set := range ruleSets {
		t.Run(name, func(t *testing.T) {
			known := kueueMetrics(t)
			all := set.rules(t)
			for _, r := range all {
				known = append(known, r.Record)
			}
			for _, r := range all {
				for _, name := range metricsOf(r.Expr) {
					name = withoutSuffix(name)
					if !slices.Contains(known, name) && !made(name, ours) {
						t.Errorf("%s%s: nobody has the metric %s", r.Alert, r.Record, name)
					}
				}
			}
		})
	}
}

// withoutSuffix removes the suffixes that the series of a histogram add to its name.
func withoutSuffix(name string) string {
	for _, suffix := range []string{"_bucket", "_count", "_sum"} {
		name = strings.TrimSuffix(name, suffix)
	}
	return name
}

// made reports whether a name is one of the literals, or made of several as namespace_subsystem_name.
func made(name string, literals []string) bool {
	if slices.Contains(literals, name) {
		return true
	}
	for i := range name {
		if i == 0 || name[i-1] != '_' {
			continue
		}
		if (slices.Contains(literals, name[:i]) || slices.Contains(literals, name[:i-1])) && made(name[i:], literals) {
			return true
		}
	}
	return false
}

// literals returns the strings in the Go files below a folder, without tests: names of metrics are among
// them.
func literals(t *testing.T, folder string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				if text, err := strconv.Unquote(lit.Value); err == nil {
					found = append(found, text)
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

var kueueMetric = regexp.MustCompile(`Subsystem:\s+constants\.KueueName,\s+Name:\s+"(\w+)"`)

// kueueMetrics returns the metrics that the Kueue of tools/kueue registers.
func kueueMetrics(t *testing.T) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kueue")
	cmd.Dir = filepath.Join(testkit.Repository(), "tools", "kueue")
	dir, err := cmd.Output()
	if err != nil {
		t.Fatalf("where Kueue's source is: %v", err)
	}
	text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "pkg", "metrics", "metrics.go"))
	if err != nil {
		t.Fatalf("Kueue's source (go -C tools/kueue mod download sigs.k8s.io/kueue): %v", err)
	}
	var found []string
	for _, m := range kueueMetric.FindAllStringSubmatch(string(text), -1) {
		found = append(found, "kueue_"+m[1])
	}
	return found
}

var (
	// Text, matchers of labels, lists of labels, ranges and offsets name no metric.
	aside = regexp.MustCompile(`"[^"]*"|\{[^}]*\}|\b(by|on|without|ignoring|group_left|group_right) ?\([^)]*\)|\[[^\]]*\]|\boffset \w+`)
	word  = regexp.MustCompile(`[a-zA-Z_:][a-zA-Z0-9_:]*\(?`)
	verbs = []string{"and", "or", "unless", "bool", "sum", "min", "max", "avg", "count"}
)

// metricsOf returns the names of the metrics in a PromQL expression, in order.
func metricsOf(expr string) []string {
	var names []string
	for _, w := range word.FindAllString(aside.ReplaceAllString(expr, " "), -1) {
		if !strings.HasSuffix(w, "(") && !slices.Contains(verbs, w) {
			names = append(names, w)
		}
	}
	return names
}

func TestMetricsOf(t *testing.T) {
	tests := map[string]struct {
		expr string
		want []string
	}{
		"functions, labels and words are none": {
			`max by (pool) (a_b{c="d"}) / on (pool) (rate(e:f[5m]) > 0) unless g offset 7d <= 3 * sum(h)`, []string{"a_b", "e:f", "g", "h"},
		},
		"text is none": {`label_replace(a, "pool", "$1", "queue", "([^.]+).*") or absent(b)`, []string{"a", "b"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, metricsOf(tc.expr)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}
