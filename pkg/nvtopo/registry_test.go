// SPDX-License-Identifier: Apache-2.0

package nvtopo

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"weak"
)

// TestRegistrySharing: the registry shares tables inside a class.
func TestRegistrySharing(t *testing.T) {
	t.Parallel()
	r := NewRegistry(DefaultWeights())
	a := machines()["hgx8"].graph(t)
	other := machines()["hgx8"]
	other.numa = []int{3, 3, 3, 3, 1, 1, 1, 1} // other names of the nodes, same shape
	b := other.graph(t)
	ta, tb := r.Tables(a), r.Tables(b)
	if ta.c != tb.c {
		t.Error("two machines of one class have tables of their own")
	}
	if ta.Graph() != a || tb.Graph() != b {
		t.Error("the tables answer for another machine's graph")
	}
	if ch, _ := tb.Choose(0xff, 0xf, 4, Constraint{}); !slices.Equal(ch.NUMANodes, []int{3}) {
		t.Errorf("NUMA nodes %v, want those of the graph asked about: [3]", ch.NUMANodes)
	}
	r.Tables(machines()["pcie8"].graph(t))
	if classes, bytes := r.Stats(); classes != 2 || bytes < 2*8000 {
		t.Errorf("%d classes in %d bytes, want 2 in at least 16000", classes, bytes)
	}
}

// TestRegistryConcurrency: the registry is safe for concurrent use. It has pickers, builders and
// PrepareAll at once; every answer must be the one a table of its own gives.
func TestRegistryConcurrency(t *testing.T) {
	t.Parallel()
	r := NewRegistry(DefaultWeights())
	graphs := []*Graph{machines()["dgx1v"].graph(t), irregular(9, 1).graph(t), irregular(11, 2).graph(t), machines()["models6"].graph(t)}
	want := make([]*Tables, len(graphs))
	for i, g := range graphs {
		want[i] = NewTables(g, DefaultWeights())
	}
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for i, g := range graphs {
				tables := r.Tables(g)
				if worker == i {
					if err := r.PrepareAll(t.Context()); err != nil {
						t.Errorf("PrepareAll: %v", err)
					}
				}
				for _, c := range constraints() {
					free := FullMask(g.Len()) &^ (1 << worker)
					got, ok := tables.Pick(free, free, 3, c)
					if s, wantOK := want[i].Pick(free, free, 3, c); s != got || ok != wantOK {
						t.Errorf("graph %d, %+v: %v (%t), want %v (%t)", i, c, got.Positions(), ok, s.Positions(), wantOK)
					}
				}
				r.Stats()
			}
		})
	}
	wg.Wait()
}

// TestPrepareContext: Prepare ends with its context.
func TestPrepareContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := NewRegistry(DefaultWeights())
	tables := r.Tables(irregular(12, 1).graph(t))
	if err := r.PrepareAll(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("PrepareAll: %v, want %v", err, context.Canceled)
	}
	if s, ok := tables.Pick(0xfff, 0xfff, 4, Constraint{}); !ok || s.Len() != 4 {
		t.Errorf("picked %v (%t) without tables", s.Positions(), ok)
	}
}

func twoGPUs(t *testing.T, bandwidth int64) *Graph {
	t.Helper()
	g, err := NewGraph(make([]GPU, 2), nil, nil, map[[2]int]Link{{0, 1}: {Class: Class{Kind: KindNVLink, Lanes: 1}, Bandwidth: bandwidth}})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// TestRegistryForgetting: the registry forgets unused classes. It plays a node whose graph changes each
// time: the tables of the last few are kept, and those of a machine that is still present.
func TestRegistryForgetting(t *testing.T) {
	t.Parallel()
	r := NewRegistry(DefaultWeights())
	held := r.Tables(twoGPUs(t, 1))
	for bw := range int64(2000) {
		r.Tables(twoGPUs(t, 2+bw))
	}
	classes := 0
	for range 200 { // clean-ups run some time after a collection
		runtime.GC()
		if classes, _ = r.Stats(); classes <= keptClasses+1 {
			break
		}
		runtime.Gosched()
	}
	if classes > keptClasses+1 || len(r.built()) < keptClasses {
		t.Errorf("%d classes are kept, want %d and the one that is held", classes, keptClasses)
	}
	if again := r.Tables(twoGPUs(t, 1)); again.c != held.c {
		t.Error("tables that are held were built again")
	}
}

// TestRegistryCollected: a registry without references is collected with its tables. An explanation and a
// replay make one each.
func TestRegistryCollected(t *testing.T) {
	t.Parallel()
	r := NewRegistry(DefaultWeights())
	r.Tables(twoGPUs(t, 1))
	left := weak.Make(r)
	runtime.KeepAlive(r)
	for range 200 { // clean-ups run some time after a collection
		if runtime.GC(); left.Value() == nil {
			return
		}
		runtime.Gosched()
	}
	t.Error("the registry is still there")
}

// TestRegistryRetention: the registry keeps the last used classes. A machine loses a link, and has it
// back after others came and went. Its tables used to be rebuilt then.
func TestRegistryRetention(t *testing.T) {
	t.Parallel()
	r := NewRegistry(DefaultWeights())
	usual := twoGPUs(t, 1)
	if r.Has(usual) {
		t.Error("there are tables of a class that was never asked for")
	}
	r.Tables(usual)
	for bw := range int64(2 * keptClasses) {
		r.Tables(twoGPUs(t, 2+bw))
		r.Tables(usual)
	}
	for bw := range int64(keptClasses - 1) {
		r.Tables(twoGPUs(t, 1000+bw))
	}
	runtime.GC()
	if !r.Has(usual) || len(r.recent) != keptClasses {
		t.Errorf("the usual machine's tables are there: %t; %d classes are kept, want %d", r.Has(usual), len(r.recent), keptClasses)
	}
	if _, built := r.Share(usual); built {
		t.Error("the usual machine's tables were built anew")
	}
	for bw := range int64(keptClasses) {
		r.Tables(twoGPUs(t, 2000+bw))
	}
	for range 200 { // clean-ups run some time after a collection
		if runtime.GC(); !r.Has(usual) {
			break
		}
	}
	if r.Has(usual) {
		t.Error("the tables of a class that nobody asked for are kept")
	}
}

// TestPrepareAllPriority: PrepareAll prefers the classes with the most machines. Singular machines must
// not keep the tables of those that make up the cluster from being built, nor fill the memory.
func TestPrepareAllPriority(t *testing.T) {
	t.Parallel()
	r := NewRegistry(DefaultWeights())
	var odd []*Tables
	for seed := range uint32(8) {
		odd = append(odd, r.Tables(irregular(9, seed).graph(t)))
	}
	usual := ofThree(r, irregular(10, 99).graph(t))
	if err := r.PrepareAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	built := 0
	for _, tb := range odd {
		if tb.c.prepared() {
			built++
		}
	}
	if !usual.c.prepared() || built != 1 {
		t.Errorf("the usual machine's tables are built: %t; of the odd ones' %d, want one at a time", usual.c.prepared(), built)
	}
	if n := usual.c.answerBytes(); n != 3*2*11<<10 {
		t.Errorf("the answer tables of 10 GPUs take %d bytes, want %d", n, 3*2*11<<10)
	}
}

// TestPrepareAllBudget: PrepareAll keeps its budget. Classes of singular machines that came first
// kept their tables when the memory went to others.
func TestPrepareAllBudget(t *testing.T) {
	t.Parallel()
	r := NewRegistry(DefaultWeights())
	odd := r.Tables(irregular(9, 1).graph(t))
	r.budget = odd.c.answerBytes()
	prepare := func() {
		t.Helper()
		if err := r.PrepareAll(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	prepare()
	if !odd.c.prepared() {
		t.Fatal("the only class got no tables: this was not a test")
	}
	usual := ofThree(r, irregular(9, 2).graph(t))
	before, _ := odd.Pick(FullMask(9), FullMask(9), 4, Constraint{})
	prepare()
	if !usual.c.prepared() || odd.c.prepared() {
		t.Errorf("tables of the usual machine %t, of the odd one %t, want one of them and the usual one's", usual.c.prepared(), odd.c.prepared())
	}
	if after, _ := odd.Pick(FullMask(9), FullMask(9), 4, Constraint{}); after != before {
		t.Errorf("without its table the odd machine answers %b, with it %b", after, before)
	}
}

// ofThree returns the tables of three equal machines.
func ofThree(r *Registry, alike *Graph) (t *Tables) {
	for i := range 3 {
		g := *alike
		g.GPUs = slices.Clone(alike.GPUs)
		g.GPUs[0].UUID = fmt.Sprintf("GPU-%d", i)
		t = r.Tables(&g)
	}
	return t
}

// TestLinkSharing: graphs of a class share their links.
func TestLinkSharing(t *testing.T) {
	r := NewRegistry(DefaultWeights())
	uuids := func(prefix string) []GPU {
		return []GPU{{UUID: prefix + "0"}, {UUID: prefix + "1", Index: 1}}
	}
	graph := func(prefix string, switched bool) *Graph {
		link := NewLink(Class{Kind: KindNVLink, Lanes: 4}, PCIeSYS, 4, 25_000_000, switched)
		link.Latency = 1000 // whether it is switched or not
		g, err := NewGraph(uuids(prefix), nil, nil, map[[2]int]Link{{0, 1}: link})
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	first, built := r.Share(graph("a", false))
	if !built {
		t.Error("the tables of the first graph were there")
	}
	for name, tc := range map[string]struct {
		g          *Graph
		wantShared bool
	}{
		"another machine of the class": {graph("b", false), true},
		"one whose links are switched": {graph("c", true), false},
	} {
		t.Run(name, func(t *testing.T) {
			got, built := r.Share(tc.g)
			if got.c != first.c || built {
				t.Error("the tables are not shared")
			}
			if shared := &got.g.links[0] == &first.g.links[0]; shared != tc.wantShared {
				t.Errorf("links shared: %t, want %t", shared, tc.wantShared)
			}
			if got.Graph().GPUs[0].UUID != tc.g.GPUs[0].UUID || got.Graph().Link(0, 1) != tc.g.Link(0, 1) {
				t.Errorf("graph %+v, want one equal to %+v", got.Graph(), tc.g)
			}
		})
	}
}
