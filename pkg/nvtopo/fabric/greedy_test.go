// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// TestGreedyPlans: greedy plans can be carried out.
func TestGreedyPlans(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 3))
	tried := 0
	for range 2000 {
		w := randomWorld(r)
		if r.IntN(2) == 0 {
			w.segments(r)
			w.segmentRequired = true
		}
		tr, req := w.request(t)
		wishes, err := req.check(tr)
		if err != nil {
			t.Fatal(err)
		}
		g := newGang(tr, req, wishes, limits{maxStates, maxTable}, tr.workspace())
		p := g.problem(&g.parts[0])
		p.load(worstBand)
		if p.capacity[0][0] < w.pods {
			continue
		}
		tried++
		got, _ := p.openedGreedily(place{0, 0})
		want, _ := p.opened(place{0, 0})
		if w.levels > 0 && got[0] != want[0] {
			t.Fatalf("%d domains of the outermost level, want %d\n%s", got[0], want[0], w)
		}
		s := &solution{place: place{0, 0}}
		p.takeGreedily(s)
		sum := 0
		segments := map[int]int{}
		for _, l := range s.choices {
			sum += l.members
			if l.members < 1 || l.members > p.capacity[w.levels][l.leaf] {
				t.Fatalf("%d members in %d slots\n%s", l.members, l.slots, w)
			}
			if p.demand.required {
				segments[tr.of[p.demand.depth][tr.domains[w.levels][l.leaf].First]] += l.members
			}
		}
		for _, n := range segments {
			if n%p.demand.size != 0 {
				t.Fatalf("%d members in segments of %d\n%s", n, p.demand.size, w)
			}
		}
		if sum != w.pods {
			t.Fatalf("%d members placed of %d\n%s", sum, w.pods, w)
		}
	}
	if tried < 500 {
		t.Errorf("only %d gangs had room", tried)
	}
}

// A thousand members on nodes without labels would need a table of a thousand by a thousand
// domains for each node.
func TestLargeGang(t *testing.T) {
	s := &Spec{Levels: []Level{{Name: "spine"}, {Name: "rack"}}}
	for i := range 3000 {
		s.Nodes = append(s.Nodes, NodePath{Node: fmt.Sprint("n", i)})
	}
	tr, _, err := NewTree(s)
	if err != nil {
		t.Fatal(err)
	}
	shape := Shape{GPUs: 8, Nodes: make([]Supply, tr.Len())}
	for n := range shape.Nodes {
		shape.Nodes[n].Slots = Unlinked(1 + n%2)
	}
	p, err := Place(tr, &Request{Shapes: []Shape{shape}, Members: make([]Member, 1000)})
	if err != nil {
		t.Fatal(err)
	}
	if p.Exact || len(p.Domains[1]) != 500 || len(p.Domains[2]) != 500 {
		t.Errorf("exact %v, %d and %d domains; want 500", p.Exact, len(p.Domains[1]), len(p.Domains[2]))
	}
}

// TestUnboundedNodes: nodes without bound do not overflow.
func TestUnboundedNodes(t *testing.T) {
	c := clusterOf(t, "dgx-h100", "spine rack", "A r0: ff ff\nA r1: ff\nB r2: ff")
	shape := Shape{Nodes: make([]Supply, c.tree.Len())}
	for n := range shape.Nodes {
		shape.Nodes[n] = Supply{Slots: Unlinked(1 << 40), Limit: AtMost(1), Preference: int64(n)}
	}
	p, err := Place(c.tree, &Request{Shapes: []Shape{shape}, Members: make([]Member, 3)})
	if got := c.names(p, err); got != "r0-0 r0-1 r1-0" {
		t.Errorf("got %s", got)
	}
	for n := range shape.Nodes {
		shape.Nodes[n] = Supply{Slots: Unlinked(1 << 40)}
	}
	p, err = Place(c.tree, &Request{Shapes: []Shape{shape}, Members: make([]Member, 40_000)})
	if err != nil || p.Level != "spine" {
		t.Errorf("%v: want three nodes of one spine, no node counts as more than %d", err, maxSlots)
	}
}

// TestEarlyEndedPlans: a plan that ended early may be worse than the best, but must not be marked as
// exact, and must be valid.
func TestEarlyEndedPlans(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(9, 9))
	rounds, exact, worse := 3000, 0, 0
	if testing.Short() {
		rounds = 400
	}
	for range rounds {
		w := worldOf(r, 1+r.IntN(3), 1+r.IntN(4), 1+r.IntN(8), r.IntN(4) == 0)
		switch r.IntN(6) {
		case 0:
			w.segments(r)
		case 1:
			w.segments(r)
			w.segmentRequired = true
			w.prefer(r)
		case 2:
			w.bindSegments(r)
			w.segmentRequired = true
		case 3:
			w.prefer(r)
		case 4:
			w.spread = r.IntN(w.levels + 1)
		}
		tr, req := w.request(t)
		want, found := w.best()
		p, err := placeWithin(tr, req, limits{states: r.IntN(4), table: 4 + r.IntN(100)})
		if (err == nil) != found {
			t.Fatalf("%v, but found %v: %+v\n%s", err, found, want, w)
		}
		if err != nil {
			continue
		}
		got := w.judge(w.placed(tr, req, p))
		c := w.compare(want, got)
		if p.Exact {
			exact++
		}
		if c < 0 {
			worse++
		}
		if !got.ok || p.Exact && c != 0 || got.ownLevel != want.ownLevel && w.spread < 0 {
			t.Fatalf("exact %v: got %+v, want %+v\n%s", p.Exact, got, want, w)
		}
		for d := 1; d <= w.levels && w.spread < 0; d++ {
			if p.Fewest[d] > want.ownDomains[d-1] {
				t.Fatalf("depth %d: fewest %d, but there is a way with %d\n%s", d, p.Fewest[d], want.ownDomains[d-1], w)
			}
		}
	}
	t.Logf("%d plans: %d exact, %d not the best", rounds, exact, worse)
	if worse == 0 || exact == 0 {
		t.Error("the limits make no difference")
	}
}
