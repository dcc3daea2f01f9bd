// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// twoShapes makes a request for workers of 2 GPUs and others of small GPUs each, 0 or 1.
func (c *cluster) twoShapes(workers, others, small, perNode int) *Request {
	s := NewSlotter()
	sizes := []int{2, small}
	supply := func(shape, n int, used nvtopo.Mask, placed []int) Supply {
		if sizes[shape] == 0 {
			return Supply{Slots: Unlinked(perNode - placed[shape])}
		}
		return Supply{Slots: s.Slots(&Machine{Tables: c.tb, Healthy: 0xf, Free: c.free[n] &^ used}, sizes[shape], nvtopo.Constraint{})}
	}
	r := &Request{Remaining: supply}
	for shape, gpus := range sizes {
		r.Shapes = append(r.Shapes, Shape{GPUs: gpus, Nodes: make([]Supply, len(c.free))})
		for n := range c.free {
			r.Shapes[shape].Nodes[n] = supply(shape, n, 0, []int{0, 0})
		}
	}
	for range others { // launchers have the first ranks
		r.Members = append(r.Members, Member{Shape: 1})
	}
	for range workers {
		r.Members = append(r.Members, Member{Shape: 0})
	}
	return r
}

// bestOfTwo tries all ways to place both shapes on a machine whose GPUs are all linked alike,
// and returns the level (negated depth) and the domains per level.
func bestOfTwo(w *world, free []int, workers, others, small, perNode int) (best judged, found bool) {
	x, y := make([]int, len(free)), make([]int, len(free))
	var try func(n, a, b int)
	try = func(n, a, b int) {
		if n == len(free) {
			if a == 0 && b == 0 {
				sum := make([]int, len(free))
				for i := range sum {
					sum[i] = x[i] + y[i]
				}
				j := w.judge(sum)
				if !found || cmp.Or(cmp.Compare(j.level, best.level), slices.Compare(j.domains, best.domains)) < 0 {
					best, found = j, true
				}
			}
			return
		}
		for x[n] = 0; x[n] <= a && 2*x[n] <= free[n]; x[n]++ {
			for y[n] = 0; y[n] <= b && 2*x[n]+small*y[n] <= free[n] && (small > 0 || y[n] <= perNode); y[n]++ {
				try(n+1, a-x[n], b-y[n])
			}
		}
		x[n], y[n] = 0, 0
	}
	try(0, workers, others)
	return best, found
}

func TestGangsOfSeveralShapes(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	rounds := 1500
	if testing.Short() {
		rounds = 200
	}
	placed, exact, best := 0, 0, 0
	tb := tables(t, "hgx-a100-4")
	for range rounds {
		w := &world{levels: 1 + r.IntN(2), spread: -1}
		c := &cluster{tb: tb}
		spec := &Spec{}
		for d := range w.levels {
			spec.Levels = append(spec.Levels, Level{Name: fmt.Sprint("level", d+1)})
		}
		masks := map[string]nvtopo.Mask{}
		for i := range 1 + r.IntN(6) {
			node := worldNode{name: fmt.Sprint("n", i), count: [5]int{99, 99, 99, 99, 99}, lost: make([]int64, 99)}
			for range w.levels {
				node.path = append(node.path, strconv.Itoa(r.IntN(2)))
			}
			masks[node.name] = nvtopo.Mask(r.Uint64()) & 0xf
			w.nodes = append(w.nodes, node)
			spec.Nodes = append(spec.Nodes, NodePath{node.name, node.path})
		}
		var err error
		if c.tree, _, err = NewTree(spec); err != nil {
			t.Fatal(err)
		}
		for n := range c.tree.Len() {
			c.free = append(c.free, masks[c.tree.Name(n)])
		}
		free := make([]int, len(w.nodes))
		for i := range w.nodes {
			free[i] = masks[w.nodes[i].name].Len()
		}
		workers, others, small, perNode := 1+r.IntN(4), 1+r.IntN(2), r.IntN(2), 1+r.IntN(2)
		want, found := bestOfTwo(w, free, workers, others, small, perNode)
		req := c.twoShapes(workers, others, small, perNode)
		p, err := Place(c.tree, req)
		var none *UnplaceableError
		if errors.As(err, &none) {
			if found {
				t.Fatalf("%v, but there is a way %+v: %d+%d of %d, free %v\n%s", err, want, workers, others, small, free, w)
			}
			continue
		}
		if err != nil || !found {
			t.Fatalf("%v, %v", p, err)
		}
		placed++
		x := make([]int, len(w.nodes))
		for rank := range req.Members {
			i := slices.IndexFunc(w.nodes, func(n worldNode) bool { return n.name == c.tree.Name(p.Nodes[rank]) })
			x[i]++
			n := p.Nodes[rank]
			if p.Sets[rank].Len() != req.Shapes[req.Members[rank].Shape].GPUs || p.Sets[rank]&^c.free[n] != 0 {
				t.Fatalf("rank %d has %b of %b", rank, p.Sets[rank], c.free[n])
			}
			c.free[n] &^= p.Sets[rank]
		}
		got := w.judge(x)
		better := cmp.Or(cmp.Compare(want.level, got.level), slices.Compare(want.domains, got.domains))
		if better == 0 {
			best++
		}
		if p.Exact {
			exact++
			if better != 0 {
				t.Fatalf("said to be exact, but %+v is better than %+v\n%s", want, got, w)
			}
		}
	}
	t.Logf("%d placed: %d as well as possible, %d of them known to be", placed, best, exact)
	if best < placed*95/100 || exact < placed*3/4 {
		t.Errorf("%d placed: %d as well as possible, %d of them known to be", placed, best, exact)
	}
}

func TestALauncherGoesToTheWorkers(t *testing.T) {
	c := clusterOf(t, "hgx-a100-4", "rack", "r0: f f\nr1: f f f")
	p, err := Place(c.tree, c.twoShapes(4, 1, 0, 1))
	if got := c.names(p, err); got != "r0-0 r0-0+ r0-1+" && got != "r0-0++ r0-1+" {
		t.Errorf("got %s", got)
	}
	if err == nil && (p.Level != "rack" || !p.Exact) {
		t.Errorf("level %s, exact %v", p.Level, p.Exact)
	}
}
