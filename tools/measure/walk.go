// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	"go/types"
	"maps"
	"slices"
	"strings"

	"golang.org/x/tools/go/types/typeutil"
)

// Walk is the path of one parameter's value through the calls, in the order of a reader who follows each
// call in the order of the source, and each function once.
//
// A value is followed to a callee if it is an argument or the receiver of a call, as a whole or as a
// field or an element that is no plain number, string or truth value; so is a variable that is set to it.
// A call through an interface leads to all methods of the repository that implement it. Results, stored
// values and fields of new structs are not followed, nor are functions that are values.
type Walk struct {
	Start   string // pkg/scheduler/nodestate.State.Judge:d
	Stays   int    // functions that the value visits, the first one too
	Rooms   int    // packages of these
	Files   int    // likewise
	Climbs  int    // pairs of caller and callee where the callee's file is above the caller's, or in a package that the caller's does not import
	Returns int    // steps from one function to the next that lead into a file left before
}

// walker finds the functions of the repository.
type walker struct {
	sources  []*source
	bodies   map[*types.Func]*body
	floors   map[*source]map[string]int // file -> place in the package's order; filled on demand
	below    map[string]map[string]bool // package path -> paths of its direct and indirect imports; filled on demand
	concrete []*types.Named
}

type body struct {
	*source
	decl *ast.FuncDecl
	fn   *types.Func
}

func newWalker(sources []*source) *walker {
	w := &walker{
		sources: sources, bodies: map[*types.Func]*body{}, floors: map[*source]map[string]int{}, below: map[string]map[string]bool{},
	}
	for _, s := range sources {
		s.functions(func(decl *ast.FuncDecl, fn *types.Func) {
			if decl.Body != nil {
				w.bodies[fn] = &body{s, decl, fn}
			}
		})
		for _, name := range s.types.Scope().Names() {
			if t, ok := s.types.Scope().Lookup(name).(*types.TypeName); ok {
				if n, ok := t.Type().(*types.Named); ok && !types.IsInterface(n) && n.TypeParams() == nil {
					w.concrete = append(w.concrete, n)
				}
			}
		}
	}
	return w
}

// walk follows the parameter that start names: PACKAGE.FUNCTION:PARAMETER or
// PACKAGE.TYPE.METHOD:PARAMETER.
func (w *walker) walk(start string) (Walk, error) {
	name, param, _ := strings.Cut(start, ":")
	for _, b := range w.bodies {
		if b.name() != name {
			continue
		}
		for v := range b.fn.Signature().Params().Variables() {
			if v.Name() == param {
				trip := &trip{walker: w, seen: map[*types.Var]bool{}, visited: map[*types.Func]bool{}, files: map[place]bool{}, climbed: map[[2]*body]bool{}, Walk: Walk{Start: start}}
				trip.visit(b, []*types.Var{v})
				trip.end()
				return trip.Walk, nil
			}
		}
		return Walk{}, fmt.Errorf("%s has no parameter %q", name, param)
	}
	return Walk{}, fmt.Errorf("no function %s: write it as pkg/scheduler/nodestate.State.Judge:d", name)
}

func (b *body) name() string {
	if receiver := b.fn.Signature().Recv(); receiver != nil {
		if t := structOf(receiver.Type()); t != nil {
			return b.path + "." + t.Name() + "." + b.fn.Name()
		}
	}
	return b.path + "." + b.fn.Name()
}

// trip is the state of a walk in progress.
type trip struct {
	*walker
	Walk
	seen    map[*types.Var]bool // parameters
	visited map[*types.Func]bool
	files   map[place]bool
	last    place // of the function visited last
	climbed map[[2]*body]bool
}

type place struct {
	*source
	name string
}

func (t *trip) end() {
	rooms := map[*source]bool{}
	for f := range t.files {
		rooms[f.source] = true
	}
	t.Stays, t.Rooms, t.Files, t.Climbs = len(t.visited), len(rooms), len(t.files), len(t.climbed)
}

func (t *trip) visit(b *body, params []*types.Var) {
	if !t.visited[b.fn] {
		t.visited[b.fn] = true
		file := place{b.source, b.file(b.decl.Pos())}
		t.Returns += number(t.last != file && t.files[file])
		t.last, t.files[file] = file, true
	}
	values := map[types.Object]bool{}
	for _, p := range params {
		t.seen[p] = true
		values[p] = true
	}
	b.alias(values)
	ast.Inspect(b.decl.Body, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			t.call(b, call, values)
		}
		return true
	})
}

// call visits the functions that receive the value by a call.
func (t *trip) call(b *body, call *ast.CallExpr, values map[types.Object]bool) {
	callee, ok := typeutil.Callee(b.info, call).(*types.Func)
	if !ok {
		return
	}
	for _, fn := range t.implementations(callee.Origin()) {
		next := t.bodies[fn]
		if next == nil {
			continue
		}
		given := b.given(call, fn.Signature(), values)
		if len(given) > 0 && t.climbs(b, next) {
			t.climbed[[2]*body{b, next}] = true
		}
		if given = slices.DeleteFunc(given, func(p *types.Var) bool { return t.seen[p] }); len(given) > 0 {
			t.visit(next, given)
		}
	}
}

// given returns the parameters that receive the value by a call.
func (b *body) given(call *ast.CallExpr, callee *types.Signature, values map[types.Object]bool) []*types.Var {
	var given []*types.Var
	if selector, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr); ok && callee.Recv() != nil && b.carries(selector.X, values) {
		given = append(given, callee.Recv())
	}
	for i, arg := range call.Args {
		if last := callee.Params().Len() - 1; last >= 0 && b.carries(arg, values) {
			given = append(given, callee.Params().At(min(i, last)))
		}
	}
	return given
}

// implementations returns the function itself, or for an interface's method the methods of the repository
// that implement it.
func (w *walker) implementations(fn *types.Func) []*types.Func {
	receiver := fn.Signature().Recv()
	if receiver == nil || !types.IsInterface(receiver.Type()) {
		return []*types.Func{fn}
	}
	iface, ok := receiver.Type().Underlying().(*types.Interface)
	if !ok {
		return nil
	}
	var found []*types.Func
	for _, n := range w.concrete {
		if p := types.NewPointer(n); types.Implements(p, iface) {
			method, _, _ := types.LookupFieldOrMethod(p, false, fn.Pkg(), fn.Name())
			if m, ok := method.(*types.Func); ok {
				found = append(found, m.Origin())
			}
		}
	}
	return found
}

// alias adds the variables that are set to the value or to a part of it.
func (b *body) alias(values map[types.Object]bool) {
	add := func(left ast.Expr) {
		id, ok := left.(*ast.Ident)
		if !ok || id.Name == "_" {
			return
		}
		if v := b.info.ObjectOf(id); v != nil && !plain(v.Type()) {
			values[v] = true
		}
	}
	for before := -1; before != len(values); {
		before = len(values)
		ast.Inspect(b.decl.Body, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				for i, right := range n.Rhs {
					if b.carries(right, values) {
						add(n.Lhs[i])
					}
				}
			case *ast.ValueSpec:
				for i, right := range n.Values {
					if b.carries(right, values) {
						add(n.Names[i])
					}
				}
			case *ast.RangeStmt:
				if n.Value != nil && b.carries(n.X, values) {
					add(n.Value)
				}
			}
			return true
		})
	}
}

// carries reports whether an expression is the value or a part of it.
func (b *body) carries(e ast.Expr, values map[types.Object]bool) bool {
	switch e := e.(type) {
	case *ast.Ident:
		return values[b.info.ObjectOf(e)]
	case *ast.IndexExpr:
		return !plain(b.info.TypeOf(e)) && b.carries(e.X, values)
	case *ast.SelectorExpr:
		field := b.info.Selections[e]
		return field != nil && field.Kind() == types.FieldVal && !plain(field.Type()) && b.carries(e.X, values)
	case *ast.CallExpr: // a conversion
		return len(e.Args) == 1 && b.info.Types[e.Fun].IsType() && b.carries(e.Args[0], values)
	}
	x := operand(e)
	return x != nil && b.carries(x, values)
}

// operand returns the operand of a dereference, an address, a slice expression or a type assertion; nil
// for other expressions.
func operand(e ast.Expr) ast.Expr {
	switch e := e.(type) {
	case *ast.ParenExpr:
		return e.X
	case *ast.StarExpr:
		return e.X
	case *ast.UnaryExpr:
		return e.X
	case *ast.SliceExpr:
		return e.X
	case *ast.TypeAssertExpr:
		return e.X
	}
	return nil
}

func plain(t types.Type) bool {
	_, basic := t.Underlying().(*types.Basic)
	return basic
}

// climbs reports whether a call goes upward.
func (w *walker) climbs(from, to *body) bool {
	if from.source != to.source {
		return !w.imports(from.types)[to.types.Path()]
	}
	floors := w.floors[from.source]
	if floors == nil {
		floors = map[string]int{}
		for i, f := range layersOf(from.source).files {
			floors[f] = i
		}
		w.floors[from.source] = floors
	}
	return floors[from.file(from.decl.Pos())] > floors[to.file(to.decl.Pos())]
}

// imports returns the paths of the repository's packages that a package imports, directly or not.
func (w *walker) imports(p *types.Package) map[string]bool {
	if found := w.below[p.Path()]; found != nil {
		return found
	}
	found := map[string]bool{}
	for _, i := range p.Imports() {
		if slices.ContainsFunc(w.sources, func(s *source) bool { return s.types == i }) {
			found[i.Path()] = true
			maps.Copy(found, w.imports(i))
		}
	}
	w.below[p.Path()] = found
	return found
}
