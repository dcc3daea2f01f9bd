// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"go/ast"
	goparser "go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestWalks: each function that design/walks.md names is one of the code.
func TestWalks(t *testing.T) {
	text, err := os.ReadFile("design/walks.md")
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile("`([a-z]+\\.[A-Za-z]+(?:\\.[A-Za-z]+)?)`").FindAllStringSubmatch(string(text), -1)
	if len(names) < 30 {
		t.Fatalf("%d names are read, want 30 at least", len(names))
	}
	known := functions(t, "../pkg")
	for _, name := range names {
		if !known[name[1]] {
			t.Errorf("there is no function %s", name[1])
		}
	}
}

// functions are those below a folder, as package.Type.Name and package.Name.
func functions(t *testing.T, dir string) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := goparser.ParseFile(token.NewFileSet(), path, nil, goparser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			name := file.Name.Name + "."
			if f.Recv != nil {
				of := f.Recv.List[0].Type
				if star, ok := of.(*ast.StarExpr); ok {
					of = star.X
				}
				if id, ok := of.(*ast.Ident); ok {
					name += id.Name + "."
				}
			}
			out[name+f.Name.Name] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
