// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
)

// largestTypes is the number of types in the tables.
const largestTypes = 20

// printTables prints the figures as Markdown.
func printTables(w io.Writer, f *Figures) {
	code, tests := 0, 0
	for _, r := range f.Rooms {
		code, tests = code+r.Lines, tests+r.Tests
	}
	fmt.Fprintf(w, "| modules | packages | mutexes | lines by hand | lines of tests |\n|--:|--:|--:|--:|--:|\n| %d | %d | %d | %d | %d |\n",
		f.Modules, f.Packages, f.Mutexes, code, tests)
	printTypes(w, f.Types)
	fmt.Fprint(w, "\n| package | arrows between files | in cycles | upward | share upward |\n|---|--:|--:|--:|--:|\n")
	for _, u := range slices.SortedStableFunc(slices.Values(f.Upward), func(a, b Upward) int { return cmp.Compare(len(b.Up), len(a.Up)) }) {
		if len(u.Up) > 0 {
			fmt.Fprintf(w, "| %s | %d | %d | %d | %d %% |\n", u.Package, u.Arrows, u.Cycles, len(u.Up), 100*len(u.Up)/u.Arrows)
		}
	}
	fmt.Fprint(w, "\n| walk | functions | packages | files | climbs | returns |\n|---|--:|--:|--:|--:|--:|\n")
	for _, walk := range f.Walks {
		fmt.Fprintf(w, "| %s | %d | %d | %d | %d | %d |\n", walk.Start, walk.Stays, walk.Rooms, walk.Files, walk.Climbs, walk.Returns)
	}
	fmt.Fprintf(w, "\n| in 1,000 words | of %d in comments | of %d in docs |\n|---|--:|--:|\n", f.Comments.Total, f.Docs.Total)
	for _, one := range watched {
		fmt.Fprintf(w, "| %s | %.2f | %.2f |\n", one, f.Comments.rate(one), f.Docs.rate(one))
	}
	fmt.Fprint(w, "\n| room | packages | lines by hand | lines of tests |\n|---|--:|--:|--:|\n")
	for _, r := range f.Rooms {
		fmt.Fprintf(w, "| %s | %d | %d | %d |\n", r.Name, r.Packages, r.Lines, r.Tests)
	}
}

func printTypes(w io.Writer, all []Type) {
	types := slices.Clone(all)
	slices.SortStableFunc(types, func(a, b Type) int { return cmp.Compare(b.Functions, a.Functions) })
	fmt.Fprint(w, "\n| type | functions with it as receiver or parameter | methods | in files | fields | behind a mutex |\n|---|--:|--:|--:|--:|--:|\n")
	for _, t := range types[:min(largestTypes, len(types))] {
		fmt.Fprintf(w, "| %s | %d | %d | %d | %d | %d |\n", t.Name, t.Functions, t.Methods, t.Files, t.Fields, t.Guarded)
	}
	slices.SortStableFunc(types, func(a, b Type) int { return cmp.Compare(b.Guarded, a.Guarded) })
	fmt.Fprint(w, "\n| most behind one mutex | fields |\n|---|--:|\n")
	for _, t := range types[:min(largestTypes/2, len(types))] {
		fmt.Fprintf(w, "| %s | %d |\n", t.Name, t.Guarded)
	}
	slices.SortStableFunc(types, func(a, b Type) int { return cmp.Compare(b.Fields, a.Fields) })
	fmt.Fprint(w, "\n| most fields | fields |\n|---|--:|\n")
	for _, t := range types[:min(largestTypes, len(types))] {
		fmt.Fprintf(w, "| %s | %d |\n", t.Name, t.Fields)
	}
}

// printUpward prints the arrows of a package's files to files above them.
func printUpward(w io.Writer, f *Figures, pkg string) error {
	i := slices.IndexFunc(f.Upward, func(u Upward) bool { return u.Package == pkg })
	if i < 0 {
		return fmt.Errorf("no package %s in the main module: name it as pkg/cli", pkg)
	}
	u := f.Upward[i]
	fmt.Fprintf(w, "%s: %d of %d arrows between files go upward\n", pkg, len(u.Up), u.Arrows)
	for _, a := range u.Up {
		fmt.Fprintf(w, "%s -> %s\n", a.From, a.To)
	}
	return nil
}
