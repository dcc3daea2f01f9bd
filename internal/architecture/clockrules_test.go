// SPDX-License-Identifier: Apache-2.0

package architecture

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"slices"
	"strings"
	"time"
)

// shortest is the least limit of a wait that may fail a test: a busy machine takes many seconds for a
// step of milliseconds on an idle one.
const shortest = time.Minute

// clockRules checks the tests of one folder for dependence on the machine's speed: comparisons of
// measured time, CPU time, and waits that give up after seconds. Code in a bubble of testing/synctest,
// where time is virtual, may do all of it.
//
// It reads syntax alone. A measured time is followed through variables, fields, results and closures by
// their names, but not through arguments of calls.
type clockRules struct {
	fset      *token.FileSet
	consts    map[string]ast.Expr // of the package
	bubble    map[string]bool     // functions that are called in bubbles only
	functions map[string][]*ast.FuncDecl
	measured  map[string]bool // functions and fields that have a measured time
	walled    bool            // measured has grown in this round
	report    func(fn *ast.FuncDecl, at ast.Node, what string)
}

// judgeClocks reports the findings of clockRules in the tests of a folder. The folder's other files may
// define constants.
func judgeClocks(fset *token.FileSet, tests, others []*ast.File, report func(fn *ast.FuncDecl, at ast.Node, what string)) {
	c := &clockRules{
		fset: fset, consts: map[string]ast.Expr{}, bubble: map[string]bool{}, functions: map[string][]*ast.FuncDecl{},
		measured: map[string]bool{}, report: func(*ast.FuncDecl, ast.Node, string) {},
	}
	for _, file := range slices.Concat(tests, others) {
		for _, decl := range file.Decls {
			constants(decl, c.consts)
		}
	}
	for _, file := range tests {
		for _, decl := range file.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Body != nil {
				c.functions[fn.Name.Name] = append(c.functions[fn.Name.Name], fn)
			}
		}
	}
	c.findBubbles(tests)
	for c.walled = true; c.walled; { // until no name is added
		c.walled = false
		c.look()
	}
	c.report = report
	c.look()
}

func constants(decl ast.Decl, into map[string]ast.Expr) {
	g, ok := decl.(*ast.GenDecl)
	if !ok || g.Tok != token.CONST {
		return
	}
	for _, spec := range g.Specs {
		if v, ok := spec.(*ast.ValueSpec); ok && len(v.Names) == len(v.Values) {
			for i, name := range v.Names {
				into[name.Name] = v.Values[i]
			}
		}
	}
}

func isTest(name string) bool {
	for _, prefix := range []string{"Test", "Benchmark", "Fuzz", "Example"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// use is a place in which a function is named.
type use struct {
	in     string // the function around it
	bubble bool
}

// findBubbles finds the functions whose every use is in a bubble, or in such a function.
func (c *clockRules) findBubbles(tests []*ast.File) {
	uses := map[string][]use{}
	for _, file := range tests {
		for _, decl := range file.Decls {
			in, from := "", ast.Node(decl)
			if fn, ok := decl.(*ast.FuncDecl); ok {
				if fn.Body == nil {
					continue
				}
				in, from = fn.Name.Name, fn.Body
			}
			bubbles := bubblesIn(from)
			ast.Inspect(from, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok && c.functions[id.Name] != nil {
					inside := slices.ContainsFunc(bubbles, func(b ast.Node) bool { return b.Pos() <= id.Pos() && id.End() <= b.End() })
					uses[id.Name] = append(uses[id.Name], use{in, inside})
				}
				return true
			})
		}
	}
	for name := range c.functions {
		c.bubble[name] = !isTest(name) && len(uses[name]) > 0
	}
	for changed := true; changed; {
		changed = false
		for name, of := range uses {
			if c.bubble[name] && slices.ContainsFunc(of, func(u use) bool { return !u.bubble && !c.bubble[u.in] }) {
				c.bubble[name], changed = false, true
			}
		}
	}
}

// bubblesIn returns the functions below a node that are passed to synctest.Test.
func bubblesIn(from ast.Node) (found []ast.Node) {
	ast.Inspect(from, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok && callee(call) == "synctest.Test" && len(call.Args) == 2 {
			found = append(found, call.Args[1])
		}
		return true
	})
	return found
}

// callee returns the name of the called function, such as time.Since or t.Fatal; only the last name of a
// longer selector.
func callee(call *ast.CallExpr) string {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		if x, ok := f.X.(*ast.Ident); ok {
			return x.Name + "." + f.Sel.Name
		}
		return "." + f.Sel.Name
	}
	return ""
}

// method returns the last name of the called function.
func method(call *ast.CallExpr) string {
	name := callee(call)
	return name[strings.LastIndex(name, ".")+1:]
}

func (c *clockRules) look() {
	for name, decls := range c.functions {
		for _, fn := range decls {
			if !c.bubble[name] {
				newClockScope(c, fn).look()
			}
		}
	}
}

func (c *clockRules) learn(name string) {
	if name != "" && name != "_" && !c.measured[name] {
		c.measured[name], c.walled = true, true
	}
}

// duration evaluates a constant.
func (c *clockRules) duration(e ast.Expr, local map[string]ast.Expr) (time.Duration, bool) {
	v := c.value(e, local, 0)
	if v.Kind() == constant.Unknown {
		return 0, false
	}
	n, exact := constant.Int64Val(constant.ToInt(v))
	return time.Duration(n), exact
}

func (c *clockRules) value(e ast.Expr, local map[string]ast.Expr, depth int) constant.Value {
	units := map[string]time.Duration{
		"Nanosecond": 1, "Microsecond": time.Microsecond, "Millisecond": time.Millisecond, "Second": time.Second, "Minute": time.Minute, "Hour": time.Hour,
	}
	unknown := constant.MakeUnknown()
	if depth++; depth > 20 {
		return unknown
	}
	switch e := e.(type) {
	case *ast.BasicLit:
		return constant.MakeFromLiteral(e.Value, e.Kind, 0)
	case *ast.ParenExpr:
		return c.value(e.X, local, depth)
	case *ast.SelectorExpr:
		if x, ok := e.X.(*ast.Ident); ok && x.Name == "time" && units[e.Sel.Name] != 0 {
			return constant.MakeInt64(int64(units[e.Sel.Name]))
		}
	case *ast.Ident:
		if v, ok := local[e.Name]; ok {
			return c.value(v, local, depth)
		}
		if v, ok := c.consts[e.Name]; ok {
			return c.value(v, nil, depth)
		}
	case *ast.CallExpr:
		if callee(e) == "time.Duration" && len(e.Args) == 1 {
			return c.value(e.Args[0], local, depth)
		}
	case *ast.BinaryExpr:
		x, y := c.value(e.X, local, depth), c.value(e.Y, local, depth)
		if x.Kind() == constant.Unknown || y.Kind() == constant.Unknown || e.Op == token.QUO && constant.Sign(y) == 0 {
			return unknown
		}
		if slices.Contains([]token.Token{token.ADD, token.SUB, token.MUL, token.QUO}, e.Op) {
			return constant.BinaryOp(x, e.Op, y)
		}
	}
	return unknown
}

func (c *clockRules) short(e ast.Expr, local map[string]ast.Expr) (string, bool) {
	d, ok := c.duration(e, local)
	return fmt.Sprint(d), ok && 0 < d && d < shortest
}
