// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/ast"
	"go/types"
	"maps"
	"slices"
)

// Upward counts the arrows between the files of a package that go upward.
//
// There is an arrow from one file to another if a function in the first calls one in the second, or
// passes it as a value. The files are put into an order in which as few arrows as possible go from a file
// to one above it: those go upward. Without a cycle of files there are none.
type Upward struct {
	Package string
	Arrows  int
	Cycles  int // arrows between files that call each other, directly or through others
	Up      []Arrow
}

// Arrow is a pair of files of which the first calls the second.
type Arrow struct{ From, To string }

// layers are a package's files from the uppermost to the lowest, and the calls between them.
type layers struct {
	pkg   string
	files []string
	calls map[Arrow]bool
}

func layersOf(s *source) *layers {
	home := map[*types.Func]string{}
	s.functions(func(decl *ast.FuncDecl, fn *types.Func) { home[fn] = s.file(decl.Pos()) })
	calls := map[Arrow]bool{}
	s.functions(func(decl *ast.FuncDecl, fn *types.Func) {
		ast.Inspect(decl, func(n ast.Node) bool {
			id, ok := n.(*ast.Ident)
			if !ok {
				return true
			}
			if callee, ok := s.info.Uses[id].(*types.Func); ok {
				if to, ours := home[callee.Origin()]; ours && to != home[fn] {
					calls[Arrow{home[fn], to}] = true
				}
			}
			return true
		})
	})
	var files []string
	for _, f := range s.files {
		files = append(files, s.file(f.Package))
	}
	return &layers{pkg: s.path, files: order(files, calls), calls: calls}
}

// upward returns the arrows that go against the order of the files.
func (l *layers) upward() Upward {
	up := Upward{Package: l.pkg, Arrows: len(l.calls), Cycles: l.cycles()}
	for i, from := range l.files {
		for _, to := range l.files[:i] {
			if l.calls[Arrow{from, to}] {
				up.Up = append(up.Up, Arrow{from, to})
			}
		}
	}
	return up
}

func (l *layers) cycles() (n int) {
	reaches := maps.Clone(l.calls)
	for _, by := range l.files {
		for _, from := range l.files {
			for _, to := range l.files {
				if reaches[Arrow{from, by}] && reaches[Arrow{by, to}] {
					reaches[Arrow{from, to}] = true
				}
			}
		}
	}
	for a := range l.calls {
		n += number(reaches[Arrow{a.To, a.From}])
	}
	return n
}

// order puts callers above the files they call, with few arrows the other way: greedily at first (Eades,
// Lin and Smyth 1993), which leaves no arrow upward if there is no cycle; then each file moves to the
// place with the fewest arrows upward, until no move is an improvement. The result is the same for the
// same files and arrows, but not always the best order: that problem is NP-hard.
func order(files []string, calls map[Arrow]bool) []string {
	best := settle(greedy(slices.Sorted(slices.Values(files)), calls), calls)
	other := settle(slices.Sorted(slices.Values(files)), calls)
	if count(other, calls) < count(best, calls) {
		return other
	}
	return best
}

// greedy takes away a file at a time: one that calls no other remaining file goes to the bottom, one that
// none calls to the top, otherwise the one with the greatest surplus of calls over callers to the top.
func greedy(left []string, calls map[Arrow]bool) []string {
	var top, bottom []string
	for len(left) > 0 {
		pick, most, down := 0, -len(left), false
		for i, f := range left {
			out, in := 0, 0
			for _, g := range left {
				out, in = out+number(calls[Arrow{f, g}]), in+number(calls[Arrow{g, f}])
			}
			if out == 0 {
				pick, down = i, true
				break
			}
			if in == 0 {
				out += len(left) // before all that have a caller
			}
			if out-in > most {
				pick, most = i, out-in
			}
		}
		if down {
			bottom = append(bottom, left[pick])
		} else {
			top = append(top, left[pick])
		}
		left = slices.Delete(left, pick, pick+1)
	}
	slices.Reverse(bottom)
	return append(top, bottom...)
}

// settle moves single files as long as that lessens the arrows upward.
func settle(files []string, calls map[Arrow]bool) []string {
	for moved := true; moved; {
		moved = false
		for _, f := range slices.Sorted(slices.Values(files)) {
			at := slices.Index(files, f)
			best, to, change := 0, at, 0
			for i := at - 1; i >= 0; i-- { // f above files[i]
				change += number(calls[Arrow{files[i], f}]) - number(calls[Arrow{f, files[i]}])
				if change < best {
					best, to = change, i
				}
			}
			change = 0
			for i := at + 1; i < len(files); i++ { // f below files[i]
				change += number(calls[Arrow{f, files[i]}]) - number(calls[Arrow{files[i], f}])
				if change < best {
					best, to = change, i
				}
			}
			if to != at {
				files = slices.Insert(slices.Delete(files, at, at+1), to, f)
				moved = true
			}
		}
	}
	return files
}

// count returns the number of arrows upward.
func count(files []string, calls map[Arrow]bool) int {
	place := map[string]int{}
	for i, f := range files {
		place[f] = i
	}
	n := 0
	for a := range maps.Keys(calls) {
		n += number(place[a.From] > place[a.To])
	}
	return n
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}
