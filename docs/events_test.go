// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"go/ast"
	goparser "go/parser"
	"go/token"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

var (
	// eventRow is a row of the table in events.md: reason and type.
	eventRow = regexp.MustCompile("(?m)^\\| `([A-Z][A-Za-z]+)` \\| (Normal|Warning) \\| [a-zA-Z]")
	// eventConstant is how the constant of an event's reason is named.
	eventConstant = regexp.MustCompile(`^[eE]vent[A-Z]`)
)

// TestEventTable: every event is in the table. The reasons of all events are constants with the
// name event…, and events.md has each of them and no other.
func TestEventTable(t *testing.T) {
	text, err := fs.ReadFile(repository(), "docs/events.md")
	if err != nil {
		t.Fatal(err)
	}
	reasons, faults := eventReasons(t, repository())
	for _, f := range faults {
		t.Error(f)
	}
	if len(reasons) < 20 {
		t.Fatalf("only %d reasons were found: %q", len(reasons), reasons)
	}
	if diff := cmp.Diff(reasons, named(eventRow, text)); diff != "" {
		t.Errorf("reasons (-in the source,+in docs/events.md)\n%s", diff)
	}
	if rows := eventRow.FindAll(text, -1); len(rows) != len(reasons) {
		t.Errorf("docs/events.md has %d rows for %d reasons", len(rows), len(reasons))
	}
}

// TestEventReasons: reasons of events are found.
func TestEventReasons(t *testing.T) {
	repo := fstest.MapFS{"pkg/a/a.go": {Data: []byte(`package a

const (
	eventGood  = "Good"
	reasonBad  = "Bad"
	eventBurst = 100
)

func f() {
	r.Eventf(pod, nil, v1.EventTypeNormal, eventGood, "Doing", "%s", "x")
	r.Eventf(pod, nil, v1.EventTypeNormal, reasonBad, "Doing", "%s", "x")
	r.Event(pod, kind, "Literal", "x")
	r.Eventf(pod, v1.EventTypeWarning, "Session"+phase, "x")
	r.Event(pod, e.kind, e.reason, "x")
}
`)}, "pkg/a/a_test.go": {Data: []byte("package a\n\nconst eventTest = \"Test\"\n")}}
	reasons, faults := eventReasons(t, repo)
	if diff := cmp.Diff([]string{"Good"}, reasons); diff != "" {
		t.Errorf("reasons (-want,+got)\n%s", diff)
	}
	want := []string{
		"pkg/a/a.go:11:2: reasonBad is the reason of an event, and is not named event…",
		"pkg/a/a.go:12:2: the reason of an event is no constant", "pkg/a/a.go:13:2: the reason of an event is no constant",
	}
	if diff := cmp.Diff(want, faults); diff != "" {
		t.Errorf("faults (-want,+got)\n%s", diff)
	}
}

// eventReasons are the values of the constants, sorted and each once, and calls that give a
// reason otherwise.
func eventReasons(t *testing.T, repo fs.FS) (reasons, faults []string) {
	t.Helper()
	others := map[string]map[string]bool{} // folder -> constants with another name
	var calls []reasonGiven
	err := fs.WalkDir(repo, "pkg", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return err
		}
		data, err := fs.ReadFile(repo, name)
		if err != nil {
			return err
		}
		set := token.NewFileSet()
		file, err := goparser.ParseFile(set, name, data, goparser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir := path.Dir(name)
		if others[dir] == nil {
			others[dir] = map[string]bool{}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ValueSpec:
				for i, id := range n.Names {
					if value := textOf(n, i); value == "" {
						continue
					} else if eventConstant.MatchString(id.Name) {
						reasons = append(reasons, value)
					} else {
						others[dir][id.Name] = true
					}
				}
			case *ast.CallExpr:
				if reason := reasonOf(n); reason != nil {
					calls = append(calls, reasonGiven{dir, set.Position(n.Pos()), reason})
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range calls {
		switch reason := c.reason.(type) {
		case *ast.BasicLit, *ast.BinaryExpr:
			faults = append(faults, fmt.Sprintf("%s: the reason of an event is no constant", c.at))
		case *ast.Ident:
			if others[c.dir][reason.Name] {
				faults = append(faults, fmt.Sprintf("%s: %s is the reason of an event, and is not named event…", c.at, reason.Name))
			}
		}
	}
	slices.Sort(reasons)
	return slices.Compact(reasons), faults
}

// reasonGiven is a call of a recorder.
type reasonGiven struct {
	dir    string
	at     token.Position
	reason ast.Expr
}

// textOf is the value of a constant or variable that is a literal text.
func textOf(n *ast.ValueSpec, i int) string {
	if i >= len(n.Values) {
		return ""
	}
	lit, ok := n.Values[i].(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return ""
	}
	value, err := strconv.Unquote(lit.Value)
	if err != nil {
		return ""
	}
	return value
}

// reasonOf is the reason that a call gives to an event, nil if it is no such call. It follows the
// event's type, which a constant EventType… or something named kind gives.
func reasonOf(call *ast.CallExpr) ast.Expr {
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || f.Sel.Name != "Eventf" && f.Sel.Name != "Event" {
		return nil
	}
	for i := 1; i+1 < len(call.Args) && i <= 2; i++ {
		name := ""
		switch a := call.Args[i].(type) {
		case *ast.SelectorExpr:
			name = a.Sel.Name
		case *ast.Ident:
			name = a.Name
		}
		if name == "kind" || strings.HasPrefix(name, "EventType") {
			return call.Args[i+1]
		}
	}
	return nil
}
