// SPDX-License-Identifier: Apache-2.0

package fabric

import "math"

// workspace is the memory of one call of Place, which its plans use one after the other. No part of it is
// part of a Plan. A Tree keeps workspaces from one call to the next.
type workspace struct {
	table       []int32 // memory of lastTable
	lastTable   *table
	lastProblem *problem // the problem of lastTable
	lastPlace   place

	memo     map[state]verdict
	searches uint16 // since the memo was cleared

	waysTried int // by searches for all shapes together, in this call

	supplies     [][]Supply // the first suppliesUsed are in use, the others are zero
	suppliesUsed int
	lists        [][]int32 // of nodes; the first listsUsed are in use
	listsUsed    int
}

const (
	// maxMemo bounds the memo of searches; beyond it, it is cleared.
	maxMemo = 1 << 14
	// maxKeptTable is the largest table whose memory is kept for the next call: 512 KiB. Larger ones are
	// rare.
	maxKeptTable = 1 << 17
)

func newWorkspace() any { return &workspace{memo: map[state]verdict{}} }

// workspace returns memory for plans, valid until release.
func (t *Tree) workspace() *workspace { return t.workspaces.Get().(*workspace) }

// release returns a workspace to the pool. No plan may be made with it afterwards.
func (t *Tree) release(w *workspace) {
	w.lastTable, w.lastProblem = nil, nil
	for i := range w.supplies[:w.suppliesUsed] {
		clear(w.supplies[i])
	}
	w.suppliesUsed, w.listsUsed, w.waysTried = 0, 0, 0
	if cap(w.table) > maxKeptTable {
		w.table = nil
	}
	t.workspaces.Put(w)
}

// forget drops the last table if it belongs to a problem that has changed.
func (w *workspace) forget(p *problem) {
	if w.lastProblem == p {
		w.lastTable, w.lastProblem = nil, nil
	}
}

// search begins a search: it returns the memo of all searches, and the number that the states of this one
// have in it. Clearing a map takes as long as the most that it ever had, so not every search does.
func (w *workspace) search() (memo map[state]verdict, number uint16) {
	if w.searches++; w.searches == math.MaxUint16 || len(w.memo) > maxMemo {
		w.searches = 0
		clear(w.memo)
	}
	return w.memo, w.searches
}

// supply returns an array of n nodes with empty supplies, valid until release.
func (w *workspace) supply(n int) []Supply {
	if w.suppliesUsed == len(w.supplies) {
		w.supplies = append(w.supplies, nil)
	}
	s := &w.supplies[w.suppliesUsed]
	w.suppliesUsed++
	if cap(*s) < n {
		*s = make([]Supply, n)
	}
	return (*s)[:n]
}

// list returns an empty list for at most n nodes, valid until release. It is never nil.
func (w *workspace) list(n int) []int32 {
	if w.listsUsed == len(w.lists) {
		w.lists = append(w.lists, nil)
	}
	s := &w.lists[w.listsUsed]
	w.listsUsed++
	if *s == nil || cap(*s) < n {
		*s = make([]int32, n)
	}
	return (*s)[:0:n]
}
