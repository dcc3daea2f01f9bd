// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"slices"
	"strings"
)

// Type is the size of a struct type.
type Type struct {
	Name      string // pkg/scheduler/nodestate.State
	Methods   int
	Functions int // of its package with it as receiver or parameter, methods included
	Files     int // with these functions
	Fields    int
	Guarded   int // fields beside a mutex that is a field
}

// typesOf returns the struct types that a package declares, by name.
func typesOf(s *source) []Type {
	found := map[*types.TypeName]*Type{}
	files := map[*types.TypeName]map[string]bool{}
	s.structs(func(name *types.TypeName, t *types.Struct) {
		found[name] = &Type{Name: s.path + "." + name.Name(), Fields: t.NumFields(), Guarded: guarded(t)}
		files[name] = map[string]bool{}
	})
	s.functions(func(decl *ast.FuncDecl, fn *types.Func) {
		signature := fn.Signature()
		if receiver := signature.Recv(); receiver != nil {
			if t := found[structOf(receiver.Type())]; t != nil {
				t.Methods++
			}
		}
		for name := range takes(signature) {
			if t := found[name]; t != nil {
				t.Functions++
				files[name][s.file(decl.Pos())] = true
			}
		}
	})
	var sorted []Type
	for name, t := range found {
		t.Files = len(files[name])
		sorted = append(sorted, *t)
	}
	slices.SortFunc(sorted, func(a, b Type) int { return strings.Compare(a.Name, b.Name) })
	return sorted
}

// structs calls f with every struct type that the package declares outside functions.
func (s *source) structs(f func(*types.TypeName, *types.Struct)) {
	for _, file := range s.files {
		for _, d := range file.Decls {
			decl, ok := d.(*ast.GenDecl)
			if !ok || decl.Tok != token.TYPE {
				continue
			}
			for _, spec := range decl.Specs {
				spec := spec.(*ast.TypeSpec)
				name, named := s.info.Defs[spec.Name].(*types.TypeName)
				if _, literal := spec.Type.(*ast.StructType); !named || !literal || spec.Assign.IsValid() {
					continue
				}
				if t, ok := name.Type().Underlying().(*types.Struct); ok {
					f(name, t)
				}
			}
		}
	}
}

// takes returns the named types of a function's receiver and parameters, each once.
func takes(signature *types.Signature) map[*types.TypeName]bool {
	found := map[*types.TypeName]bool{}
	if receiver := signature.Recv(); receiver != nil {
		found[structOf(receiver.Type())] = true
	}
	for v := range signature.Params().Variables() {
		found[structOf(v.Type())] = true
	}
	return found
}

// structOf returns the name of a type, or of a pointer's element; nil for a type without name.
func structOf(t types.Type) *types.TypeName {
	if p, ok := types.Unalias(t).(*types.Pointer); ok {
		t = p.Elem()
	}
	if n, ok := types.Unalias(t).(*types.Named); ok {
		return n.Origin().Obj()
	}
	return nil
}

// guarded counts the fields of a struct that has a mutex, without the mutexes.
func guarded(t *types.Struct) int {
	others := 0
	for f := range t.Fields() {
		if !isMutex(f.Type()) {
			others++
		}
	}
	if others == t.NumFields() {
		return 0
	}
	return others
}

func isMutex(t types.Type) bool {
	name := structOf(t)
	return name != nil && name.Pkg() != nil && name.Pkg().Path() == "sync" && (name.Name() == "Mutex" || name.Name() == "RWMutex")
}

// mutexesOf counts the fields and variables of a package that are mutexes. A pointer to one is not
// another mutex.
func mutexesOf(s *source) int {
	n := 0
	for def := range maps.Values(s.info.Defs) {
		if v, ok := def.(*types.Var); ok && isMutex(v.Type()) {
			if _, pointer := types.Unalias(v.Type()).(*types.Pointer); !pointer {
				n++
			}
		}
	}
	return n
}
