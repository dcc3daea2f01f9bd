// SPDX-License-Identifier: Apache-2.0

package nvtopo

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
)

func TestRegistrySharesTablesInsideAClass(t *testing.T) {
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

// TestRegistryIsSafeForConcurrentUse has pickers, builders and PrepareAll at
// once; every answer must be the one a table of its own gives.
func TestRegistryIsSafeForConcurrentUse(t *testing.T) {
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

func TestPrepareEndsWithItsContext(t *testing.T) {
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

func TestRegistryForgetsTheOldestClass(t *testing.T) {
	t.Parallel()
	r := NewRegistry(DefaultWeights())
	graph := func(bandwidth int64) *Graph {
		g, err := NewGraph(make([]GPU, 2), nil, nil, map[[2]int]Link{{0, 1}: {Class: Class{Kind: KindNVLink, Lanes: 1}, Bandwidth: bandwidth}})
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	first := r.Tables(graph(1))
	for bw := range int64(maxClasses) {
		r.Tables(graph(2 + bw))
	}
	if classes, _ := r.Stats(); classes != maxClasses {
		t.Errorf("%d classes are kept, want %d", classes, maxClasses)
	}
	if again := r.Tables(graph(1)); again.c == first.c || again.Ring(3) != first.Ring(3) {
		t.Error("the oldest class is still kept, or its tables changed")
	}
}
