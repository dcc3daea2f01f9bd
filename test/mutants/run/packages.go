// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
)

// listed is a package in the output of go list.
type listed struct {
	ImportPath                         string
	Dir                                string
	Imports, TestImports, XTestImports []string
	TestGoFiles, XTestGoFiles          []string
}

func (p *listed) hasTests() bool { return len(p.TestGoFiles)+len(p.XTestGoFiles) > 0 }

// listPackages returns the packages by import path.
func listPackages(ctx context.Context, patterns []string) (map[string]*listed, error) {
	args := append([]string{"list", "-json=ImportPath,Dir,Imports,TestImports,XTestImports,TestGoFiles,XTestGoFiles"}, patterns...)
	cmd := exec.CommandContext(ctx, "go", args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w\n%s", err, stderr.String())
	}
	all := map[string]*listed{}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		p := &listed{}
		switch err := dec.Decode(p); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, fmt.Errorf("go list: %w", err)
		}
		all[p.ImportPath] = p
	}
}

// nearest returns the packages with tests that import a package, directly or not, itself included: those
// with the fewest imports between come first.
func nearest(all map[string]*listed, of string) []string {
	links := map[string]int{of: 0} // number of imports to the package, without those of tests
	for step := 1; ; step++ {
		var next []string
		for path, p := range all {
			if _, ok := links[path]; !ok && least(links, p.Imports) == step-1 {
				next = append(next, path)
			}
		}
		if len(next) == 0 {
			break
		}
		for _, path := range next {
			links[path] = step
		}
	}
	type far struct {
		path  string
		links int
	}
	var out []far
	for path, p := range all {
		at := least(links, slices.Concat(p.Imports, p.TestImports, p.XTestImports))
		if own, ok := links[path]; ok {
			at = min(at, own-1)
		}
		if p.hasTests() && at < never {
			out = append(out, far{path, at})
		}
	}
	slices.SortFunc(out, func(a, b far) int { return cmp.Or(cmp.Compare(a.links, b.links), cmp.Compare(a.path, b.path)) })
	paths := make([]string, len(out))
	for i := range out {
		paths[i] = out[i].path
	}
	return paths
}

// never is more imports than a package has.
const never = 1 << 20

func least(links map[string]int, imports []string) int {
	at := never
	for _, path := range imports {
		if n, ok := links[path]; ok {
			at = min(at, n)
		}
	}
	return at
}
