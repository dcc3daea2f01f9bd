// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

// source is a package with its hand-written files, without tests.
type source struct {
	path  string // below the module: pkg/scheduler/nodestate
	files []*ast.File
	fset  *token.FileSet
	types *types.Package
	info  *types.Info
}

// load reads packages of the module in dir. A package that does not compile is an error.
func load(ctx context.Context, dir string, patterns ...string) ([]*source, error) {
	found, err := packages.Load(&packages.Config{
		Context: ctx, Dir: dir,
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedModule | packages.NeedImports |
			packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo,
	}, patterns...)
	if err != nil {
		return nil, fmt.Errorf("load packages of %s: %w", dir, err)
	}
	var sources []*source
	for _, p := range found {
		if len(p.Errors) > 0 {
			return nil, fmt.Errorf("package %s: %w", p.PkgPath, p.Errors[0])
		}
		s := &source{path: p.PkgPath, fset: p.Fset, types: p.Types, info: p.TypesInfo}
		if p.Module != nil {
			s.path = strings.TrimPrefix(p.PkgPath, p.Module.Path+"/")
		}
		for _, f := range p.Syntax {
			if !ast.IsGenerated(f) {
				s.files = append(s.files, f)
			}
		}
		sources = append(sources, s)
	}
	slices.SortFunc(sources, func(a, b *source) int { return strings.Compare(a.path, b.path) })
	return sources, nil
}

// file returns the name of the file of a position, without its folder.
func (s *source) file(pos token.Pos) string {
	return filepath.Base(s.fset.Position(pos).Filename)
}

// functions calls f with every function that the package declares.
func (s *source) functions(f func(*ast.FuncDecl, *types.Func)) {
	for _, file := range s.files {
		for _, d := range file.Decls {
			decl, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			if fn, ok := s.info.Defs[decl.Name].(*types.Func); ok {
				f(decl, fn)
			}
		}
	}
}
