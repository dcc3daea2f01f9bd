// SPDX-License-Identifier: Apache-2.0

package architecture

import (
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

// clockScope holds the variables of one function and its closures that depend on time.
type clockScope struct {
	*clockRules
	fn       *ast.FuncDecl
	bubbles  []ast.Node
	consts   map[string]ast.Expr
	wall     map[string]bool     // variables that have the time of day; true: some time from it
	measured map[string]bool     // variables that have a measured time
	timers   map[string]ast.Expr // variables that have the channel of a timer: its time
}

func newClockScope(c *clockRules, fn *ast.FuncDecl) *clockScope {
	return &clockScope{
		clockRules: c, fn: fn, bubbles: bubblesIn(fn.Body), consts: map[string]ast.Expr{}, wall: map[string]bool{},
		measured: map[string]bool{}, timers: map[string]ast.Expr{},
	}
}

func (s *clockScope) inBubble(n ast.Node) bool {
	return slices.Contains(s.bubbles, n)
}

// look first collects the variables that hold a time, until no more are found, and then reports how the
// function uses them.
func (s *clockScope) look() {
	for before := -1; before != len(s.wall)+len(s.measured)+len(s.timers); {
		before = len(s.wall) + len(s.measured) + len(s.timers)
		ast.Inspect(s.fn.Body, func(n ast.Node) bool { s.learnFrom(n); return !s.inBubble(n) })
	}
	results(s.fn.Body, func(e ast.Expr) {
		if s.isMeasured(e) {
			s.learn(s.fn.Name.Name)
		}
	})
	ast.Inspect(s.fn.Body, func(n ast.Node) bool {
		if s.inBubble(n) {
			return false
		}
		s.judge(n)
		return true
	})
}

// results calls f with each expression that a function returns, without those of its closures.
func results(body ast.Node, f func(ast.Expr)) {
	ast.Inspect(body, func(n ast.Node) bool {
		if r, ok := n.(*ast.ReturnStmt); ok {
			for _, e := range r.Results {
				f(e)
			}
		}
		_, closure := n.(*ast.FuncLit)
		return !closure
	})
}

func (s *clockScope) learnFrom(n ast.Node) {
	switch n := n.(type) {
	case *ast.DeclStmt:
		constants(n.Decl, s.consts)
	case *ast.ValueSpec:
		if len(n.Names) == len(n.Values) {
			for i, name := range n.Names {
				s.assign(name, n.Values[i])
			}
		}
	case *ast.AssignStmt:
		if len(n.Lhs) == len(n.Rhs) {
			for i, e := range n.Rhs {
				s.assign(n.Lhs[i], e)
			}
		}
	case *ast.RangeStmt:
		if n.Value != nil && s.isMeasured(n.X) {
			s.assign(n.Value, n.X)
		}
	}
}

func (s *clockScope) assign(to, e ast.Expr) {
	if closure, ok := e.(*ast.FuncLit); ok {
		results(closure.Body, func(r ast.Expr) {
			if s.isMeasured(r) {
				s.assign(to, r)
			}
		})
		return
	}
	if index, ok := to.(*ast.IndexExpr); ok {
		to = index.X
	}
	switch to := to.(type) {
	case *ast.Ident:
		if call, ok := e.(*ast.CallExpr); ok && callee(call) == "time.After" && len(call.Args) == 1 {
			s.timers[to.Name] = call.Args[0]
		}
		if wall, moved := s.isWall(e); wall {
			s.wall[to.Name] = s.wall[to.Name] || moved
		}
		if s.isMeasured(e) {
			s.measured[to.Name] = true
		}
	case *ast.SelectorExpr:
		if s.isMeasured(e) {
			s.learn(to.Sel.Name)
		}
	}
}

// isWall reports whether an expression is the time of day, and whether a duration was added to it.
func (s *clockScope) isWall(e ast.Expr) (wall, moved bool) {
	switch e := e.(type) {
	case *ast.Ident:
		moved, wall = s.wall[e.Name]
		return wall, moved
	case *ast.CallExpr:
		if callee(e) == "time.Now" {
			return true, false
		}
		f, ok := e.Fun.(*ast.SelectorExpr)
		if !ok || !slices.Contains([]string{"Add", "Truncate", "Round", "UTC", "Local"}, f.Sel.Name) {
			return false, false
		}
		wall, moved = s.isWall(f.X)
		return wall, wall && (moved || f.Sel.Name == "Add")
	}
	return false, false
}

// isMeasured reports whether an expression contains a measured time. String literals do not.
func (s *clockScope) isMeasured(e ast.Expr) (found bool) {
	ast.Inspect(e, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.Ident:
			found = found || s.measured[n.Name]
		case *ast.SelectorExpr:
			found = found || s.clockRules.measured[n.Sel.Name] && s.functions[n.Sel.Name] == nil
			ast.Inspect(n.X, func(x ast.Node) bool { // its name is another's
				if x, ok := x.(ast.Expr); ok {
					found = found || s.isMeasured(x)
				}
				return false
			})
			return false
		case *ast.CallExpr:
			name := callee(n)
			if strings.HasPrefix(name, "fmt.") || name == "len" || name == "make" || name == "new" {
				return false
			}
			found = found || s.measures(n, name)
		}
		return !found
	})
	return found
}

func (s *clockScope) measures(call *ast.CallExpr, name string) bool {
	switch method(call) {
	case "Since", "Until":
		return strings.HasPrefix(name, "time.")
	case "Sub":
		if f, ok := call.Fun.(*ast.SelectorExpr); ok && len(call.Args) == 1 {
			from, _ := s.isWall(f.X)
			to, _ := s.isWall(call.Args[0])
			return from || to
		}
	case "Elapsed", "NsPerOp", "UserTime", "SystemTime":
		return true
	}
	return s.functions[method(call)] != nil && s.clockRules.measured[method(call)]
}

// limits are the functions that give up after a time, with the index of the argument that sets it.
var limits = map[string]int{
	"testkit.Eventually": 1, "Eventually": 1, "context.WithTimeout": 1, "context.WithTimeoutCause": 1, "wait.PollUntilContextTimeout": 2,
	"context.WithDeadline": 1, ".SetDeadline": 0, ".SetReadDeadline": 0, ".SetWriteDeadline": 0,
}

func (s *clockScope) judge(n ast.Node) {
	switch n := n.(type) {
	case *ast.BinaryExpr:
		comparisons := []token.Token{token.LSS, token.LEQ, token.GTR, token.GEQ, token.EQL, token.NEQ}
		if slices.Contains(comparisons, n.Op) && !isNil(n.Y) && (s.isMeasured(n.X) || s.isMeasured(n.Y)) {
			s.report(s.fn, n, "compares a measured time")
		}
	case *ast.SelectorExpr:
		if n.Sel.Name == "Getrusage" && !s.isBenchmark() {
			s.report(s.fn, n, "measures CPU time")
		}
	case *ast.CallExpr:
		s.judgeCall(n)
	case *ast.KeyValueExpr:
		if key, ok := n.Key.(*ast.Ident); ok && key.Name == "Timeout" && s.inClient(n) {
			if d, short := s.short(n.Value, s.consts); short {
				s.report(s.fn, n, "a client gives up after "+d)
			}
		}
	case *ast.CommClause:
		if d, short := s.short(s.waitsFor(n.Comm), s.consts); short && slices.ContainsFunc(n.Body, fails) {
			s.report(s.fn, n, "fails after "+d)
		}
	}
}

func (s *clockScope) judgeCall(call *ast.CallExpr) {
	name := callee(call)
	if f, ok := call.Fun.(*ast.SelectorExpr); ok && slices.Contains([]string{"Before", "After", "Compare"}, f.Sel.Name) && len(call.Args) == 1 {
		x, later := s.isWall(f.X)
		y, than := s.isWall(call.Args[0])
		if x && y || later || than {
			s.report(s.fn, call, "compares the time of day")
		}
	}
	at, ok := limits[name]
	if !ok {
		at, ok = limits["."+method(call)]
	}
	if !ok || at >= len(call.Args) {
		return
	}
	limit := call.Args[at]
	if add, ok := limit.(*ast.CallExpr); ok && method(add) == "Add" && len(add.Args) == 1 {
		if wall, _ := s.isWall(add); wall {
			limit = add.Args[0]
		}
	}
	if d, short := s.short(limit, s.consts); short {
		s.report(s.fn, call, strings.TrimPrefix(name, ".")+" gives up after "+d)
	}
}

func isNil(e ast.Expr) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == "nil"
}

// isBenchmark reports whether a function takes a *testing.B: a benchmark measures time as its result.
func (s *clockScope) isBenchmark() bool {
	return slices.ContainsFunc(s.fn.Type.Params.List, func(f *ast.Field) bool {
		star, ok := f.Type.(*ast.StarExpr)
		if !ok {
			return false
		}
		of, ok := star.X.(*ast.SelectorExpr)
		return ok && of.Sel.Name == "B"
	})
}

// inClient reports whether a field belongs to a literal of http.Client.
func (s *clockScope) inClient(field *ast.KeyValueExpr) (found bool) {
	ast.Inspect(s.fn.Body, func(n ast.Node) bool {
		if lit, ok := n.(*ast.CompositeLit); ok && slices.Contains(lit.Elts, ast.Expr(field)) {
			of, ok := lit.Type.(*ast.SelectorExpr)
			found = ok && of.Sel.Name == "Client"
		}
		return !found
	})
	return found
}

// waitsFor returns the duration of the timer that a case of a select waits for.
func (s *clockScope) waitsFor(comm ast.Stmt) ast.Expr {
	from, ok := comm.(*ast.ExprStmt)
	if !ok {
		return nil
	}
	receive, ok := from.X.(*ast.UnaryExpr)
	if !ok || receive.Op != token.ARROW {
		return nil
	}
	switch of := receive.X.(type) {
	case *ast.Ident:
		return s.timers[of.Name]
	case *ast.CallExpr:
		if callee(of) == "time.After" && len(of.Args) == 1 {
			return of.Args[0]
		}
	}
	return nil
}

// fails reports whether a statement fails the test.
func fails(stmt ast.Stmt) (found bool) {
	ast.Inspect(stmt, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			found = found || slices.Contains([]string{"Fatal", "Fatalf", "Error", "Errorf", "Fail", "FailNow", "panic"}, method(call))
		}
		return !found
	})
	return found
}
