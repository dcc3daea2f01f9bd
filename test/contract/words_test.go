// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"fmt"
	"go/ast"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nvtopo/nvtopo/internal/contract"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/placement"
)

// row is a row of a table in docs/, with trimmed cells.
type row struct {
	page, heading string
	cells         []string
}

func tables(t *testing.T) []row {
	t.Helper()
	pages, err := filepath.Glob(filepath.Join(testkit.Repository(), "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	var out []row
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		heading := ""
		for line := range strings.Lines(string(text)) {
			line = strings.TrimSpace(line)
			switch {
			case strings.HasPrefix(line, "#"):
				heading = strings.TrimLeft(line, "# ")
			case strings.HasPrefix(line, "| ") && strings.HasSuffix(line, " |"):
				cells := strings.Split(strings.Trim(line, "| "), " | ")
				out = append(out, row{filepath.Base(page), heading, cells})
			}
		}
	}
	return out
}

// TestEvents compares reason and type of every event in the source with docs/events.md, which adds its
// object and its sender.
func TestEvents(t *testing.T) {
	types := map[string]map[string]bool{} // reason -> types that a call names
	for _, f := range source(t) {
		for _, file := range f.files {
			ast.Inspect(file, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.ValueSpec:
					for i, id := range n.Names {
						if i < len(n.Values) && regexp.MustCompile(`^[eE]vent[A-Z]`).MatchString(id.Name) {
							if text, ok := literal(n.Values[i]); ok && types[text] == nil {
								types[text] = map[string]bool{}
							}
						}
					}
				case *ast.CallExpr:
					s, ok := n.Fun.(*ast.SelectorExpr)
					if !ok || s.Sel.Name != "Eventf" && s.Sel.Name != "Event" {
						return true
					}
					for i, a := range n.Args[:len(n.Args)-1] {
						if kind, ok := a.(*ast.SelectorExpr); ok && strings.HasPrefix(kind.Sel.Name, "EventType") {
							if reason, err := f.text(file, n.Args[i+1], nil); err == nil {
								if types[reason] == nil {
									types[reason] = map[string]bool{}
								}
								types[reason][strings.TrimPrefix(kind.Sel.Name, "EventType")] = true
							}
						}
					}
				}
				return true
			})
		}
	}
	rows := map[string]row{}
	for _, r := range tables(t) {
		if r.page == "events.md" && len(r.cells) == 4 {
			rows[strings.Trim(r.cells[0], "`")] = r
		}
	}
	var b strings.Builder
	for _, reason := range slices.Sorted(maps.Keys(types)) {
		r, ok := rows[reason]
		if !ok {
			t.Errorf("docs/events.md has no row for %s", reason)
			continue
		}
		if types[reason][r.cells[1]] != (len(types[reason]) > 0) {
			t.Errorf("docs/events.md says that %s is of type %s, calls say %v", reason, r.cells[1], slices.Sorted(maps.Keys(types[reason])))
		}
		fmt.Fprintf(&b, "%s %s, %s, by %s\n", reason, r.cells[1], strings.ToLower(r.heading[:1])+r.heading[1:], r.cells[3])
	}
	contract.Compare(t, "events.txt", b.String())
}

var (
	// key matches keys of annotations, labels and conditions.
	key = regexp.MustCompile(`^[a-z0-9-]+(\.[a-z0-9-]+)+/[A-Za-z0-9._-]*$`)
	// notKeys matches strings of the same form: versions of APIs and paths of the cgroup file system.
	notKeys = regexp.MustCompile(`/v\d+((alpha|beta)\d+)?$`)
	inTicks = regexp.MustCompile("`([^`]+)`")
)

// TestKeys compares all keys of annotations, labels, conditions and resources in the source, and the
// values that a table in docs/ gives each.
func TestKeys(t *testing.T) {
	keys := map[string][]string{}
	for _, f := range source(t) {
		if strings.HasSuffix(f.name, "test") {
			continue // clusters for tests, which hold keys as text
		}
		for _, file := range f.files {
			ast.Inspect(file, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.ImportSpec:
					return false
				case *ast.ValueSpec: // the keys of a scheduling cycle's state stay in the process
					if s, ok := n.Type.(*ast.SelectorExpr); ok && s.Sel.Name == "StateKey" {
						return false
					}
				case *ast.BasicLit:
					if text, ok := literal(n); ok && key.MatchString(text) && !notKeys.MatchString(text) {
						keys[text] = nil
					}
				}
				return true
			})
		}
	}
	if len(keys) < 40 {
		t.Errorf("only %d keys were found", len(keys))
	}
	for _, r := range tables(t) {
		if !slices.Contains([]string{"configuration.md", "gangs.md", "fabric.md"}, r.page) {
			continue // other tables describe former keys
		}
		for _, m := range inTicks.FindAllStringSubmatch(r.cells[0], -1) {
			if said, ok := keys[m[1]]; ok {
				keys[m[1]] = append(said, fmt.Sprintf("%s: %s", r.page, strings.Join(r.cells[1:], " | ")))
			}
		}
	}
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		fmt.Fprintln(&b, k)
		for _, said := range keys[k] {
			fmt.Fprintln(&b, "  "+said)
		}
	}
	contract.Compare(t, "keys.txt", b.String())
}

// TestCauses compares the names of the causes for which a pod waits: those of pkg/inspect/explain, and
// the reasons of pkg/placement.
func TestCauses(t *testing.T) {
	found := map[string]bool{}
	for _, f := range source(t) {
		for _, file := range f.files {
			ast.Inspect(file, func(n ast.Node) bool {
				spec, ok := n.(*ast.ValueSpec)
				if !ok || f.name != "pkg/inspect/explain" {
					return true
				}
				if id, ok := spec.Type.(*ast.Ident); ok && id.Name == "Cause" {
					for _, v := range spec.Values {
						text, err := f.text(file, v, nil)
						if err != nil {
							t.Error(err)
						}
						found["cause "+text] = true
					}
				}
				return true
			})
		}
	}
	for r := placement.Fits; r.Name() != "Unknown"; r++ {
		found[strings.TrimRight(fmt.Sprintf("reason %s: %s", r.Name(), r), ": ")] = true
	}
	if len(found) < 40 {
		t.Errorf("only %d causes were found", len(found))
	}
	contract.Compare(t, "causes.txt", strings.Join(slices.Sorted(maps.Keys(found)), "\n")+"\n")
}
