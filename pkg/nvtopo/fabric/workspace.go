// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"math"
	"sync"
)

// workspace is the memory of one call of Place, which its plans use one after the other. Nothing in
// it is part of a Plan.
type workspace struct {
	table []int32 // of the last table
	last  *table  // of the problem and the place below
	of    *problem
	at    place

	memo     map[state]verdict
	searches uint16 // since it was cleared

	supplies [][]Supply // arrays that have nothing, but for the first, which have been given out
	lists    [][]int32  // of nodes
	given    int        // arrays
	listed   int        // lists
}

var workspaces = sync.Pool{New: func() any { return &workspace{memo: map[state]verdict{}} }}

// maxMemo bounds what is remembered of searches before it is all forgotten.
const maxMemo = 1 << 14

// release gives a workspace back. No plan may be made with it afterwards.
func (w *workspace) release() {
	w.last, w.of = nil, nil
	for i := range w.supplies[:w.given] {
		clear(w.supplies[i])
	}
	w.given, w.listed = 0, 0
	if cap(w.table) > maxTable/64 {
		w.table = nil
	}
	workspaces.Put(w)
}

// forget drops the last table if it is a problem's, of which something has changed.
func (w *workspace) forget(p *problem) {
	if w.of == p {
		w.last, w.of = nil, nil
	}
}

// search begins a search: it returns the memo of all searches, and the number that the states of this
// one have in it. Clearing a map takes as long as the most that it ever had, so not every search does.
func (w *workspace) search() (memo map[state]verdict, number uint16) {
	if w.searches++; w.searches == math.MaxUint16 || len(w.memo) > maxMemo {
		w.searches = 0
		clear(w.memo)
	}
	return w.memo, w.searches
}

// supply returns an array of n nodes that have nothing, until the release.
func (w *workspace) supply(n int) []Supply {
	if w.given == len(w.supplies) {
		w.supplies = append(w.supplies, nil)
	}
	s := &w.supplies[w.given]
	w.given++
	if cap(*s) < n {
		*s = make([]Supply, n)
	}
	return (*s)[:n]
}

// list returns an empty list for at most n nodes, until the release.
func (w *workspace) list(n int) []int32 {
	if w.listed == len(w.lists) {
		w.lists = append(w.lists, nil)
	}
	s := &w.lists[w.listed]
	w.listed++
	if cap(*s) < n {
		*s = make([]int32, n)
	}
	return (*s)[:0:n]
}
