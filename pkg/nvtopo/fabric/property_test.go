// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// randomWorld makes a small fabric with few names and few numbers, so that ties are common.
func randomWorld(r *rand.Rand) *world {
	return worldOf(r, r.IntN(4), 1+r.IntN(4), 1+r.IntN(8), r.IntN(3) == 0)
}

// worldOf returns a fabric with the given number of levels, names at each level, and nodes; with missing,
// some nodes have no label.
func worldOf(r *rand.Rand, levels, names, nodes int, missing bool) *world {
	w := &world{levels: levels, pods: 1 + r.IntN(6), spread: -1}
	for i := range nodes {
		node := worldNode{name: fmt.Sprintf("n%d", i), path: make([]string, w.levels)}
		for d := range node.path {
			if missing && r.IntN(5) == 0 {
				break
			}
			node.path[d] = strconv.Itoa(r.IntN(names))
		}
		for b := range node.count {
			if b > 0 {
				node.count[b] = node.count[b-1]
			}
			if r.IntN(3) == 0 {
				node.count[b] = min(4, node.count[b]+r.IntN(4))
			}
		}
		lost := int64(0)
		for range node.count[4] {
			lost += int64(r.IntN(4))
			node.lost = append(node.lost, lost)
		}
		w.nodes = append(w.nodes, node)
	}
	return w
}

// request is the world as the planner sees it.
func (w *world) request(tb testing.TB) (*Tree, *Request) {
	tb.Helper()
	s := &Spec{}
	for d := range w.levels {
		s.Levels = append(s.Levels, Level{Name: fmt.Sprintf("level%d", d+1)})
	}
	for _, n := range w.nodes {
		s.Nodes = append(s.Nodes, NodePath{Node: n.name, Path: n.path})
	}
	t, faults, err := NewTree(s)
	if err != nil || len(faults) > 0 {
		tb.Fatal(err, faults)
	}
	r := &Request{Shapes: []Shape{{GPUs: 1, Nodes: make([]Supply, t.Len())}}}
	for _, n := range w.nodes {
		i, _ := t.Node(n.name)
		slots := &Slots{count: n.count, model: modelName(n.model)}
		for _, lost := range n.lost {
			slots.divisions = append(slots.divisions, division{lost: lost, ring: modelRing(n.model)})
		}
		r.Shapes[0].Nodes[i] = Supply{Slots: slots, Preference: n.like, Hardware: n.hard}
		if w.order == nil {
			r.Members = append(r.Members, slices.Repeat([]Member{{Bound: true, Node: i}}, n.bound)...)
		}
	}
	for _, n := range w.order {
		m := Member{}
		if n >= 0 {
			m.Bound = true
			m.Node, _ = t.Node(w.nodes[n].name)
		}
		r.Members = append(r.Members, m)
	}
	if w.order == nil {
		r.Members = append(r.Members, make([]Member, w.pods)...)
	}
	for _, n := range w.near {
		i, _ := t.Node(w.nodes[n].name)
		r.Near = append(r.Near, i)
	}
	if w.required > 0 {
		r.Required = t.LevelName(w.required)
	}
	if w.size > 0 {
		r.SegmentSize, r.SegmentLevel, r.SegmentRequired = w.size, t.LevelName(w.segment), w.segmentRequired
	}
	if w.spread >= 0 {
		r.SpreadOver, r.MaxPerDomain = t.LevelName(w.spread), w.most
	}
	return t, r
}

// placed counts the new members of a plan by the world's nodes.
func (w *world) placed(t *Tree, r *Request, p *Plan) []int {
	x := make([]int, len(w.nodes))
	for rank, m := range r.Members {
		for i := range w.nodes {
			if !m.Bound && w.nodes[i].name == t.Name(p.Nodes[rank]) {
				x[i]++
			}
		}
	}
	return x
}

// TestPlanBruteForce: plans are the best of all ways.
func TestPlanBruteForce(t *testing.T) {
	t.Parallel()
	cases := map[string]func(r *rand.Rand, w *world){
		"nothing but members": func(*rand.Rand, *world) {},
		"many ways to choose racks and spines": func(r *rand.Rand, w *world) {
			*w = *worldOf(r, 2, 4, 9, false)
			for i := range w.nodes {
				n := r.IntN(3)
				w.nodes[i].count, w.nodes[i].lost = [5]int{n, n, n, n, n}, make([]int64, n)
			}
			w.pods = 3 + r.IntN(4)
		},
		"a required level": func(r *rand.Rand, w *world) { w.required = r.IntN(w.levels + 2) },
		"preferred nodes": func(r *rand.Rand, w *world) {
			for i := range w.nodes {
				w.nodes[i].like = int64(r.IntN(3))
			}
		},
		"preferred segments": func(r *rand.Rand, w *world) { w.segments(r) },
		"preferred segments on preferred nodes": func(r *rand.Rand, w *world) {
			w.segments(r)
			for i := range w.nodes {
				w.nodes[i].like = int64(r.IntN(2))
			}
		},
		"required segments": func(r *rand.Rand, w *world) {
			w.segments(r)
			w.segmentRequired = true
		},
		"required segments on preferred nodes": func(r *rand.Rand, w *world) {
			w.segments(r)
			w.segmentRequired = true
			w.prefer(r)
		},
		"required segments on preferred nodes in a required level": func(r *rand.Rand, w *world) {
			w.segments(r)
			w.segmentRequired = true
			w.prefer(r)
			w.required = r.IntN(w.levels + 2)
		},
		"segments of which some members have their nodes": func(r *rand.Rand, w *world) {
			w.bindSegments(r)
		},
		"segments of which some members have their nodes, and preferred nodes": func(r *rand.Rand, w *world) {
			w.bindSegments(r)
			w.prefer(r)
		},
		"required segments of which some members have their nodes": func(r *rand.Rand, w *world) {
			w.bindSegments(r)
			w.segmentRequired = true
		},
		"required segments of which some members have their nodes, and preferred nodes": func(r *rand.Rand, w *world) {
			w.bindSegments(r)
			w.segmentRequired = true
			w.prefer(r)
		},
		"bound segments in a required level": func(r *rand.Rand, w *world) {
			w.bindSegments(r)
			w.segmentRequired = r.IntN(2) == 0
			w.required = r.IntN(w.levels + 2)
		},
		"near others": func(r *rand.Rand, w *world) { w.beNear(r) },
		"near others in a required level, some bound": func(r *rand.Rand, w *world) {
			w.beNear(r)
			w.required = r.IntN(w.levels + 2)
			if r.IntN(2) == 0 {
				w.bind(r)
			}
		},
		"near others in segments": func(r *rand.Rand, w *world) {
			w.beNear(r)
			w.segments(r)
			w.segmentRequired = r.IntN(2) == 0
			w.required = r.IntN(w.levels + 1)
		},
		"near others and spread": func(r *rand.Rand, w *world) {
			w.beNear(r)
			w.spread = r.IntN(w.levels + 1)
			w.required = r.IntN(max(1, w.spread))
		},
		"members that have their nodes": func(r *rand.Rand, w *world) { w.bind(r) },
		"bound members and a required level": func(r *rand.Rand, w *world) {
			w.bind(r)
			w.required = r.IntN(w.levels + 2)
		},
		"spread": func(r *rand.Rand, w *world) { w.spread = r.IntN(w.levels + 1) },
		"spread, so many in a domain, in one required domain, some bound": func(r *rand.Rand, w *world) {
			w.spread = r.IntN(w.levels + 1)
			w.most = r.IntN(4)
			w.required = r.IntN(max(1, w.spread))
			if r.IntN(2) == 0 {
				w.bind(r)
			}
		},
	}
	for name, change := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(16, 1))
			rounds, placed := 2000, 0
			if testing.Short() {
				rounds = 200
			}
			for range rounds {
				w := randomWorld(r)
				change(r, w)
				if compareWithBest(t, w) {
					placed++
				}
			}
			if placed < rounds/10 {
				t.Errorf("only %d of %d gangs could be placed at all", placed, rounds)
			}
		})
	}
}

func (w *world) segments(r *rand.Rand) {
	w.size = 1 + r.IntN(3)
	w.pods = w.size * (1 + r.IntN(6/w.size))
	w.segment = r.IntN(w.levels + 1)
}

func (w *world) prefer(r *rand.Rand) {
	for i := range w.nodes {
		w.nodes[i].like = int64(r.IntN(3))
	}
}

func (w *world) beNear(r *rand.Rand) {
	for range 1 + r.IntN(2) {
		w.near = append(w.near, r.IntN(len(w.nodes)))
	}
}

// bindSegments binds some members, those of one segment often beside each other.
func (w *world) bindSegments(r *rand.Rand) {
	w.segments(r)
	w.pods = 0
	all := w.size * (1 + r.IntN(6/w.size))
	beside := 0
	for rank := range all {
		if rank%w.size == 0 || r.IntN(4) == 0 {
			beside = r.IntN(len(w.nodes))
		}
		if rank < all-1 && r.IntN(2) == 0 {
			w.order = append(w.order, beside)
			w.nodes[beside].bound++
		} else {
			w.order = append(w.order, -1)
			w.pods++
		}
	}
}

func (w *world) bind(r *rand.Rand) {
	for range 1 + r.IntN(3) {
		w.nodes[r.IntN(len(w.nodes))].bound++
	}
}

// compareWithBest reports whether there was a plan at all.
func compareWithBest(t *testing.T, w *world) bool {
	t.Helper()
	tr, req := w.request(t)
	want, found := w.best()
	plan, err := Place(tr, req)
	var none *UnplaceableError
	switch {
	case errors.As(err, &none):
		if found {
			t.Fatalf("%q, but there is a way: %+v\n%s", err, want, w)
		}
		if none.Have >= none.Want && none.Detail == "" {
			t.Fatalf("%q says nothing\n%s", err, w)
		}
		return false
	case err != nil:
		t.Fatalf("%v\n%s", err, w)
	case !found:
		t.Fatalf("a plan where there is none: %+v\n%s", plan, w)
	}
	x := w.placed(tr, req, plan)
	got := w.judge(x)
	if !got.ok || w.compare(got, want) != 0 {
		t.Fatalf("placed %v: got %+v, want %+v\n%s", x, got, want, w)
	}
	if !plan.Exact {
		t.Fatalf("not exact\n%s", w)
	}
	if level := tr.LevelName(-got.ownLevel); plan.Level != level {
		t.Fatalf("level %s, want %s\n%s", plan.Level, level, w)
	}
	if plan.SegmentsCut != got.cuts {
		t.Fatalf("%d segments cut, want %d: %v\n%s", plan.SegmentsCut, got.cuts, plan.Nodes, w)
	}
	for d := 1; d <= w.levels; d++ {
		if len(plan.Domains[d]) != got.ownDomains[d-1] || w.spread < 0 && len(w.near) == 0 && plan.Fewest[d] != got.domains[d-1] {
			t.Fatalf("depth %d: %d domains, fewest %d, want %d\n%s", d, len(plan.Domains[d]), plan.Fewest[d], got.ownDomains[d-1], w)
		}
	}
	if w.size == 0 && w.levels > 0 && tr.Crossings(plan.Nodes) != crossingsOf(plan) && !hasBound(req) {
		t.Fatalf("%d crossings between %d domains: %v\n%s", plan.Crossings, len(plan.Domains[w.levels]), plan.Nodes, w)
	}
	again, _ := Place(tr, req)
	if d := cmp.Diff(plan, again); d != "" {
		t.Fatalf("another plan the second time:\n%s", d)
	}
	return true
}

// crossingsOf returns the crossings of ranks laid depth first: one for each innermost domain.
func crossingsOf(p *Plan) int {
	if d := len(p.Domains[len(p.Domains)-1]); d > 1 {
		return d
	}
	return 0
}

func hasBound(r *Request) bool {
	for _, m := range r.Members {
		if m.Bound {
			return true
		}
	}
	return false
}
