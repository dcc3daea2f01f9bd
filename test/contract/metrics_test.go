// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/printer"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nvtopo/nvtopo/internal/contract"
)

var constructor = regexp.MustCompile(`^New(Counter|Gauge|Histogram|Summary)(Vec|Func)?$`)

// TestMetrics compares name, type, labels, buckets and help of every metric in the source.
func TestMetrics(t *testing.T) {
	var found []string
	for _, f := range source(t) {
		types := constantTypes(f)
		for _, file := range f.files {
			for _, d := range definitions(file) {
				for _, b := range uses(file, d) {
					line, err := f.metric(file, d.call, b, types)
					if err != nil {
						t.Error(err)
					}
					found = append(found, line)
				}
			}
		}
	}
	if len(found) < 60 {
		t.Errorf("only %d metrics were found", len(found))
	}
	slices.Sort(found)
	contract.Compare(t, "metrics.txt", strings.Join(slices.Compact(found), "\n")+"\n")
}

// definition is a call that makes a metric or its description. function is the innermost function around
// it, on whose parameters its name may depend.
type definition struct {
	call     *ast.CallExpr
	outer    *ast.FuncDecl
	function ast.Node // *ast.FuncLit or *ast.FuncDecl, the innermost
}

func definitions(file *ast.File) []definition {
	var out []definition
	var stack []ast.Node
	ast.Inspect(file, func(n ast.Node) bool {
		if n == nil {
			stack = stack[:len(stack)-1]
			return true
		}
		stack = append(stack, n)
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		s, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || len(call.Args) == 0 || s.Sel.Name != "NewDesc" && !constructor.MatchString(s.Sel.Name) {
			return true
		}
		d := definition{call: call}
		for _, n := range stack {
			switch n := n.(type) {
			case *ast.FuncDecl:
				d.outer, d.function = n, n
			case *ast.FuncLit:
				d.function = n
			}
		}
		out = append(out, d)
		return true
	})
	return out
}

// uses binds the parameters of the function around a definition, once for each call of the function. A
// definition that does not depend on them is used once.
func uses(file *ast.File, d definition) []bindings {
	locals := bindings{}
	var name string
	params := paramsOf(d.function)
	if d.outer != nil {
		ast.Inspect(d.outer, func(n ast.Node) bool {
			if a, ok := n.(*ast.AssignStmt); ok && len(a.Lhs) == 1 && len(a.Rhs) == 1 {
				if id, ok := a.Lhs[0].(*ast.Ident); ok {
					locals[id.Name] = a.Rhs
					if a.Rhs[0] == d.function {
						name = id.Name
					}
				}
			}
			return true
		})
	}
	within := ast.Node(d.outer)
	if decl, ok := d.function.(*ast.FuncDecl); ok {
		name, within = decl.Name.Name, file
	}
	if len(params) == 0 || !mentions(d.call, params) {
		return []bindings{locals}
	}
	var out []bindings
	ast.Inspect(within, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		if id, ok := call.Fun.(*ast.Ident); !ok || id.Name != name {
			return true
		}
		b := maps.Clone(locals)
		for i, p := range params {
			switch {
			case i == len(params)-1: // all remaining arguments, if it is variadic
				b[p] = call.Args[min(i, len(call.Args)):]
			case i < len(call.Args):
				b[p] = call.Args[i : i+1]
			}
		}
		out = append(out, b)
		return true
	})
	return out
}

func paramsOf(function ast.Node) []string {
	var list *ast.FieldList
	switch f := function.(type) {
	case *ast.FuncDecl:
		list = f.Type.Params
	case *ast.FuncLit:
		list = f.Type.Params
	default:
		return nil
	}
	var out []string
	for _, p := range list.List {
		for _, id := range p.Names {
			out = append(out, id.Name)
		}
	}
	return out
}

func mentions(n ast.Node, names []string) (yes bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && slices.Contains(names, id.Name) {
			yes = true
		}
		return true
	})
	return yes
}

// metric returns the line that describes one metric.
func (f *folder) metric(file *ast.File, call *ast.CallExpr, b bindings, types []string) (string, error) {
	kind := call.Fun.(*ast.SelectorExpr).Sel.Name //nolint:forcetypeassert // definitions has asked
	var name, help, buckets string
	var labels []string
	var err error
	if kind == "NewDesc" {
		if name, err = f.text(file, call.Args[0], b); err != nil {
			return "", err
		}
		if help, err = f.text(file, call.Args[1], b); err != nil {
			return "", err
		}
		if labels, err = f.list(file, call.Args[2], b); err != nil {
			return "", err
		}
		kind = "gauge"
		if strings.HasSuffix(name, "_total") {
			kind = "counter"
		}
		if !slices.Contains(types, kind) {
			return "", fmt.Errorf("%s: metric %s should be a %s by its name, and this package has values of %v only", f.where(call), name, kind, types)
		}
	} else {
		kind = strings.ToLower(constructor.FindStringSubmatch(kind)[1])
		options := map[string]ast.Expr{}
		ast.Inspect(call.Args[0], func(n ast.Node) bool {
			if kv, ok := n.(*ast.KeyValueExpr); ok {
				if id, ok := kv.Key.(*ast.Ident); ok {
					options[id.Name] = kv.Value
				}
			}
			return true
		})
		var parts []string
		for _, key := range []string{"Namespace", "Subsystem", "Name"} {
			if options[key] == nil {
				continue
			}
			part, err := f.text(file, options[key], b)
			if err != nil {
				return "", err
			}
			parts = append(parts, part)
		}
		name = strings.Join(parts, "_")
		if help, err = f.text(file, options["Help"], b); err != nil {
			return "", err
		}
		if options["Buckets"] != nil {
			var text bytes.Buffer
			if err := printer.Fprint(&text, f.fset, options["Buckets"]); err != nil {
				return "", fmt.Errorf("%s: %w", f.where(call), err)
			}
			buckets = " buckets " + strings.Join(strings.Fields(text.String()), " ")
		}
		if len(call.Args) > 1 {
			if labels, err = f.list(file, call.Args[1], b); err != nil {
				return "", err
			}
		}
	}
	return fmt.Sprintf("%s %s{%s}%s: %s", name, kind, strings.Join(labels, ","), buckets, help), nil
}

// constantTypes returns the types of the values that a package gives to metric descriptions.
func constantTypes(f *folder) []string {
	var out []string
	for _, file := range f.files {
		ast.Inspect(file, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok && (s.Sel.Name == "GaugeValue" || s.Sel.Name == "CounterValue") {
				out = append(out, strings.ToLower(strings.TrimSuffix(s.Sel.Name, "Value")))
			}
			return true
		})
	}
	return out
}
