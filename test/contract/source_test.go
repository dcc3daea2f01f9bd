// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/nvtopo/nvtopo/internal/testkit"
)

// folder is the source of one package, without its tests.
type folder struct {
	name  string // in the repository
	files []*ast.File
	texts map[string]string // constant -> its text
	fset  *token.FileSet
	all   map[string]*folder // by name, to look up constants of other packages
}

// source returns the source folders of the programs.
func source(t *testing.T) []*folder {
	t.Helper()
	found := map[string]*folder{}
	for _, top := range []string{"pkg", "cmd", "internal/daemon", "internal/release"} {
		err := filepath.WalkDir(filepath.Join(testkit.Repository(), top), func(file string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
				return err
			}
			name, err := filepath.Rel(testkit.Repository(), filepath.Dir(file))
			if err != nil {
				return err
			}
			f := found[name]
			if f == nil {
				f = &folder{name: filepath.ToSlash(name), texts: map[string]string{}, fset: token.NewFileSet(), all: found}
				found[name] = f
			}
			parsed, err := parser.ParseFile(f.fset, file, nil, parser.ParseComments)
			f.files = append(f.files, parsed)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	var out []*folder
	for _, f := range found {
		f.readConstants()
		out = append(out, f)
	}
	slices.SortFunc(out, func(a, b *folder) int { return strings.Compare(a.name, b.name) })
	return out
}

// readConstants reads the constants whose value is a literal; eval handles the rest.
func (f *folder) readConstants() {
	for _, file := range f.files {
		ast.Inspect(file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.ValueSpec); ok && len(spec.Values) == len(spec.Names) {
				for i, id := range spec.Names {
					if text, ok := literal(spec.Values[i]); ok {
						f.texts[id.Name] = text
					}
				}
			}
			return true
		})
	}
}

func literal(e ast.Expr) (string, bool) {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(lit.Value)
	return text, err == nil
}

// bindings are the arguments and values of a function's parameters and variables.
type bindings map[string][]ast.Expr

// text returns the value of a string expression.
func (f *folder) text(file *ast.File, e ast.Expr, b bindings) (string, error) {
	switch e := e.(type) {
	case *ast.BasicLit:
		if text, ok := literal(e); ok {
			return text, nil
		}
	case *ast.ParenExpr:
		return f.text(file, e.X, b)
	case *ast.BinaryExpr:
		left, err := f.text(file, e.X, b)
		if err != nil {
			return "", err
		}
		right, err := f.text(file, e.Y, b)
		return left + right, err
	case *ast.Ident:
		if to := b[e.Name]; len(to) == 1 {
			return f.text(file, to[0], nil)
		}
		if text, ok := f.texts[e.Name]; ok {
			return text, nil
		}
	case *ast.SelectorExpr:
		if id, ok := e.X.(*ast.Ident); ok {
			if other := f.imported(file, id.Name); other != nil {
				if text, ok := other.texts[e.Sel.Name]; ok {
					return text, nil
				}
			}
		}
	case *ast.CallExpr: // BuildFQName
		if s, ok := e.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "BuildFQName" {
			var parts []string
			for _, a := range e.Args {
				part, err := f.text(file, a, b)
				if err != nil {
					return "", err
				}
				if part != "" {
					parts = append(parts, part)
				}
			}
			return strings.Join(parts, "_"), nil
		}
	}
	return "", fmt.Errorf("%s: no text that this test can read", f.where(e))
}

// list returns the value of an expression of a list of strings.
func (f *folder) list(file *ast.File, e ast.Expr, b bindings) ([]string, error) {
	var elements []ast.Expr
	switch e := e.(type) {
	case *ast.CompositeLit:
		elements = e.Elts
	case *ast.Ident:
		to, ok := b[e.Name]
		if !ok && e.Name != "nil" {
			return nil, fmt.Errorf("%s: no list that this test can read", f.where(e))
		}
		if len(to) == 1 {
			if c, ok := to[0].(*ast.CompositeLit); ok {
				return f.list(file, c, b)
			}
		}
		elements = to
	default:
		return nil, fmt.Errorf("%s: no list that this test can read", f.where(e))
	}
	var out []string
	for _, x := range elements {
		if id, ok := x.(*ast.Ident); ok && len(b[id.Name]) == 1 {
			if c, ok := b[id.Name][0].(*ast.CompositeLit); ok { // list... as the last argument
				more, err := f.list(file, c, b)
				if err != nil {
					return nil, err
				}
				out = append(out, more...)
				continue
			}
		}
		text, err := f.text(file, x, b)
		if err != nil {
			return nil, err
		}
		out = append(out, text)
	}
	return out, nil
}

// imported returns the package of ours that a file imports under a name.
func (f *folder) imported(file *ast.File, name string) *folder {
	for _, i := range file.Imports {
		p, _ := strconv.Unquote(i.Path.Value)
		if own := path.Base(p); i.Name == nil && own == name || i.Name != nil && i.Name.Name == name {
			return f.all[strings.TrimPrefix(p, "github.com/nvtopo/nvtopo/")]
		}
	}
	return nil
}

func (f *folder) where(n ast.Node) string {
	p := f.fset.Position(n.Pos())
	return fmt.Sprintf("%s/%s:%d", f.name, filepath.Base(p.Filename), p.Line)
}
