// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/oracle"
)

// twoShapes makes a request for workers of 2 GPUs and others of small GPUs each, 0 or 1.
func (c *cluster) twoShapes(workers, others, small, perNode int) *Request {
	s := NewSlotCounter()
	sizes := []int{2, small}
	supply := func(shape, n int, used nvtopo.Mask, placed []int) Supply {
		if sizes[shape] == 0 {
			return Supply{Slots: Unlinked(perNode - placed[shape])}
		}
		return Supply{Slots: s.Slots(&Machine{Tables: c.tb, Healthy: nvtopo.FullMask(c.tb.Graph().Len()), Free: c.free[n] &^ used}, sizes[shape], nvtopo.Constraint{})}
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

// pairing is a world in which workers of 2 GPUs and others of 1 or no GPU are placed.
type pairing struct {
	*world
	c               *cluster
	free            []nvtopo.Mask // by the world's nodes
	workers, others int
	small, perNode  int
	bands           map[nvtopo.Mask]int // of all pairs
}

func newPairing(t *testing.T, r *rand.Rand, tb *nvtopo.Tables, bands map[nvtopo.Mask]int) *pairing {
	t.Helper()
	w := &world{levels: 1 + r.IntN(2), spread: -1}
	p := &pairing{world: w, c: &cluster{tb: tb}, bands: bands, workers: 1 + r.IntN(4), others: 1 + r.IntN(2), small: r.IntN(2), perNode: 1 + r.IntN(2)}
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
		masks[node.name] = nvtopo.Mask(r.Uint64()&r.Uint64()|r.Uint64()&0xf) & nvtopo.FullMask(tb.Graph().Len())
		p.free = append(p.free, masks[node.name])
		w.nodes = append(w.nodes, node)
		spec.Nodes = append(spec.Nodes, NodePath{Node: node.name, Path: node.path})
	}
	var err error
	if p.c.tree, _, err = NewTree(spec); err != nil {
		t.Fatal(err)
	}
	for n := range p.c.tree.Len() {
		p.c.free = append(p.c.free, masks[p.c.tree.Name(n)])
	}
	return p
}

// band is the best worst band of so many disjoint pairs of free GPUs; false if there are not
// so many with enough left for the others.
func (p *pairing) band(free nvtopo.Mask, pairs, others int) (best int, ok bool) {
	if pairs == 0 {
		return 0, p.small*others <= free.Len() && (p.small > 0 || others <= p.perNode)
	}
	for set, band := range p.bands {
		if set&^free != 0 {
			continue
		}
		if rest, fits := p.band(free&^set, pairs-1, others); fits && (!ok || max(rest, band) < best) {
			best, ok = max(rest, band), true
		}
	}
	return best, ok
}

// compareTwo is the objective as far as it is kept for several shapes.
func (p *pairing) compareTwo(a, b judged) int {
	if p.spread >= 0 {
		return cmp.Or(-cmp.Compare(len(a.profile), len(b.profile)), slices.Compare(a.profile, b.profile), cmp.Compare(a.band, b.band))
	}
	return cmp.Or(cmp.Compare(a.level, b.level), cmp.Compare(sumOf(a.domains), sumOf(b.domains)), slices.Compare(a.domains, b.domains), cmp.Compare(a.band, b.band))
}

// best tries all ways to place both shapes.
func (p *pairing) best() (best judged, found bool) {
	x, y := make([]int, len(p.free)), make([]int, len(p.free))
	var try func(n, a, b, band int)
	try = func(n, a, b, band int) {
		if n == len(p.free) {
			if a > 0 || b > 0 {
				return
			}
			sum := make([]int, len(p.free))
			for i := range sum {
				sum[i] = x[i] + y[i]
			}
			j := p.judge(sum)
			j.band = band
			if j.ok && (!found || p.compareTwo(j, best) < 0) {
				best, found = j, true
			}
			return
		}
		for x[n] = 0; x[n] <= a; x[n]++ {
			for y[n] = 0; y[n] <= b; y[n]++ {
				if here, ok := p.band(p.free[n], x[n], y[n]); ok {
					try(n+1, a-x[n], b-y[n], max(band, here))
				}
			}
		}
		x[n], y[n] = 0, 0
	}
	try(0, p.workers, p.others, 0)
	return best, found
}

// most is how many members fit at the same time.
func (p *pairing) most() (most int) {
	workers, others := p.workers, p.others
	defer func() { p.workers, p.others = workers, others }()
	for p.workers = range workers + 1 {
		for p.others = range others + 1 {
			if p.workers+p.others <= most {
				continue
			}
			if _, found := p.best(); found {
				most = p.workers + p.others
			}
		}
	}
	return most
}

// check sees that members have GPUs that are free and no two the same, and judges the plan.
func (p *pairing) check(t *testing.T, req *Request, plan *Plan) judged {
	t.Helper()
	x, band := make([]int, len(p.nodes)), 0
	free := slices.Clone(p.c.free)
	for rank, m := range req.Members {
		n, set := plan.Nodes[rank], plan.Sets[rank]
		x[slices.IndexFunc(p.nodes, func(o worldNode) bool { return o.name == p.c.tree.Name(n) })]++
		if set.Len() != req.Shapes[m.Shape].GPUs || set&^free[n] != 0 {
			t.Fatalf("rank %d has %b of %b", rank, set, free[n])
		}
		free[n] &^= set
		band = max(band, p.bands[set])
	}
	j := p.judge(x)
	j.band = band
	if !j.ok || band > plan.Band {
		t.Fatalf("band %d, said to be %d: %+v\n%s", band, plan.Band, j, p)
	}
	return j
}

func pairBands(tb *nvtopo.Tables) map[nvtopo.Mask]int {
	n, o := tb.Graph().Len(), oracle.New(tb.Graph())
	bands := map[nvtopo.Mask]int{}
	for a := range n {
		for b := range a {
			bands[nvtopo.MaskOf(a, b)] = bandOf(o, n, nvtopo.MaskOf(a, b))
		}
	}
	return bands
}

func TestSeveralShapes(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		machine string
		change  func(r *rand.Rand, p *pairing, req *Request)
		// Shares of the gangs that have room that must be as good as possible, and known to be.
		wantBest, wantExact float64
	}{
		"all GPUs alike": {machine: "hgx-a100-4", change: func(*rand.Rand, *pairing, *Request) {}, wantBest: 0.95, wantExact: 0.7},
		"bands":          {machine: "dgx1-v100", change: func(*rand.Rand, *pairing, *Request) {}, wantBest: 0.9, wantExact: 0.6},
		"a required level": {machine: "hgx-a100-4", change: func(r *rand.Rand, p *pairing, req *Request) {
			p.required = r.IntN(p.levels + 2)
			req.Required = p.c.tree.LevelName(p.required)
		}, wantBest: 0.95, wantExact: 0.7},
		"spread": {machine: "hgx-a100-4", change: func(r *rand.Rand, p *pairing, req *Request) {
			p.spread = 1 + r.IntN(p.levels)
			p.required = r.IntN(p.spread)
			req.SpreadOver, req.Required = p.c.tree.LevelName(p.spread), p.c.tree.LevelName(p.required)
		}, wantBest: 0.8},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(4, 4))
			rounds := 1000
			if testing.Short() {
				rounds = 150
			}
			tb := tables(t, tc.machine)
			bands := pairBands(tb)
			room, exact, best := 0, 0, 0
			for range rounds {
				p := newPairing(t, r, tb, bands)
				req := p.c.twoShapes(p.workers, p.others, p.small, p.perNode)
				tc.change(r, p, req)
				want, found := p.best()
				plan, err := Place(p.c.tree, req)
				var none *UnplaceableError
				if found {
					room++
				}
				switch {
				case errors.As(err, &none) && none.AtMost:
					if most := p.most(); none.Have < min(most, none.Want-1) {
						t.Fatalf("room for at most %d, but for %d\n%s", none.Have, most, p)
					}
					continue // counted as not the best if there is a way
				case errors.As(err, &none):
					if most := p.most(); none.Have != most || total(none.Fit) != most || none.Unproven {
						t.Fatalf("%v, and there is room for %d\n%s", none, most, p)
					}
					continue
				case err != nil || !found:
					t.Fatalf("%v, %v\n%s", plan, err, p)
				}
				c := p.compareTwo(want, p.check(t, req, plan))
				if c == 0 {
					best++
				}
				if plan.Exact {
					exact++
				}
				if c > 0 || plan.Exact && c != 0 {
					t.Fatalf("exact %v, want %+v\n%s", plan.Exact, want, p)
				}
				for d := 1; d <= p.levels && p.spread < 0; d++ {
					if plan.Fewest[d] > want.domains[d-1] {
						t.Fatalf("depth %d: fewest %d, but there is a way with %d\n%s", d, plan.Fewest[d], want.domains[d-1], p)
					}
				}
			}
			t.Logf("%d with room: %d as well as possible, %d known to be", room, best, exact)
			if float64(best) < tc.wantBest*float64(room) || float64(exact) < tc.wantExact*float64(room) {
				t.Errorf("%d with room: %d as well as possible, %d known to be", room, best, exact)
			}
		})
	}
}

// TestThreeShapes: members that could be elsewhere leave the node to those that cannot, whichever shape is
// placed first.
func TestThreeShapes(t *testing.T) {
	t.Parallel()
	c, s := clusterOf(t, "hgx-a100-4", "rack", "r0: f f"), NewSlotCounter()
	r := &Request{Members: []Member{{Shape: 0}, {Shape: 1}, {Shape: 2}}}
	r.Remaining = func(shape, n int, used nvtopo.Mask, _ []int) Supply {
		if n > 0 && shape != 1 {
			return Supply{}
		}
		return Supply{Slots: s.Slots(&Machine{Tables: c.tb, Healthy: 0xf, Free: 0xf &^ used}, []int{2, 2, 1}[shape], nvtopo.Constraint{})}
	}
	for shape, gpus := range []int{2, 2, 1} {
		r.Shapes = append(r.Shapes, Shape{GPUs: gpus, Nodes: []Supply{r.Remaining(shape, 0, 0, nil), r.Remaining(shape, 1, 0, nil)}})
	}
	p, err := Place(c.tree, r)
	if got, want := c.names(p, err), "r0-0 r0-1 r0-0"; got != want || err == nil && (p.Level != "rack" || p.Exact) {
		t.Errorf("got %s, want %s: %+v", got, want, p)
	}
}

// TestLauncherPlacement: a launcher is placed with the workers.
func TestLauncherPlacement(t *testing.T) {
	c := clusterOf(t, "hgx-a100-4", "rack", "r0: f f\nr1: f f f")
	p, err := Place(c.tree, c.twoShapes(4, 1, 0, 1))
	if got := c.names(p, err); got != "r0-0 r0-0+ r0-1+" && got != "r0-0++ r0-1+" {
		t.Errorf("got %s", got)
	}
	if err == nil && (p.Level != "rack" || !p.Exact) {
		t.Errorf("level %s, exact %v", p.Level, p.Exact)
	}
}

func TestPlaceSeveralShapes(t *testing.T) {
	cases := map[string]struct {
		nodes           string
		workers, others int
		small           int
		change          func(r *Request)
		want, wantLevel string
	}{
		"both are spread inside one required domain": {
			nodes: "A r0: 3 3\nA r1: 3 3\nB r2: f f\nB r3: f f", workers: 4, others: 2, small: 1,
			change: func(r *Request) { r.SpreadOver, r.Required = "rack", "spine" },
			want:   "r2-1 r3-1 r2-0+ r3-0+", wantLevel: "spine",
		},
		"and nothing if no domain has both": {
			nodes: "A r0: 3 3\nA r1: 3 3\nB r2: 1\nB r3: 1", workers: 4, others: 1, small: 1,
			change: func(r *Request) { r.SpreadOver, r.Required = "rack", "spine" },
			want:   "spine: at most 4 of 5, because members ask for different things, and no place was found for all of them together",
		},
		"and one that has no room even alone": {
			nodes: "A r0: f f\nA r1: f f", workers: 3, others: 2, small: 5,
			want: "cluster: 3 of 5, because members ask for different things, and 2 of them have no place even without those that ask for something else",
		},
		"a launcher is in no segment": {
			nodes: "A r0: f f\nA r1: f f 1", workers: 8, others: 1, small: 1,
			change: func(r *Request) { r.SegmentSize, r.SegmentRequired = 4, true },
			want:   "r1-2 r0-0+ r0-1+ r1-0+ r1-1+", wantLevel: "spine",
		},
		"a launcher beside segments of which some members have their nodes": {
			nodes: "A r0: 3 3\nA r1: 3 f", workers: 4, others: 1, small: 0,
			change: func(r *Request) {
				r.SegmentSize, r.SegmentRequired = 2, true
				r.Members[2] = Member{Bound: true, Node: 3}
			},
			want: "r1-0+ r1-1++", wantLevel: "rack",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := clusterOf(t, "hgx-a100-4", "spine rack", tc.nodes)
			r := c.twoShapes(tc.workers, tc.others, tc.small, 1)
			if tc.change != nil {
				tc.change(r)
			}
			p, err := Place(c.tree, r)
			if got := c.names(p, err); got != tc.want {
				t.Fatalf("got %s, want %s", got, tc.want)
			}
			if err == nil && p.Level != tc.wantLevel {
				t.Errorf("level %s, want %s", p.Level, tc.wantLevel)
			}
		})
	}
}

// TestRoomOfManyShapes checks that a refusal counts no fewer members than fit, or says that the number is an
// upper bound: many shapes have more ways to fill a node than are tried.
func TestRoomOfManyShapes(t *testing.T) {
	t.Parallel()
	for _, shapes := range []int{8, 16, 32} {
		c, s := clusterOf(t, "hgx-h200", "rack", "r0: "+strings.Repeat("f ", 100)), NewSlotCounter()
		r := &Request{}
		sizes := make([]int, shapes)
		for i := range sizes {
			sizes[i] = 1
		}
		sizes[0] = 8
		r.Remaining = func(shape, n int, used nvtopo.Mask, _ []int) Supply {
			if n > 0 && shape < 2 { // the first two want the same node, which has room for one of them
				return Supply{}
			}
			return Supply{Slots: s.Slots(&Machine{Tables: c.tb, Healthy: 0xff, Free: 0xff &^ used}, sizes[shape], nvtopo.Constraint{})}
		}
		for i, gpus := range sizes {
			shape := Shape{GPUs: gpus}
			for n := range 100 {
				shape.Nodes = append(shape.Nodes, r.Remaining(i, n, 0, nil))
			}
			r.Shapes = append(r.Shapes, shape)
			for range min(i, 2) + 1 - min(i, 1) { // one of each of the first two, two of the others
				r.Members = append(r.Members, Member{Shape: i})
			}
		}
		_, err := Place(c.tree, r)
		var none *UnplaceableError
		if !errors.As(err, &none) {
			t.Fatalf("%d shapes: %v, want no room", shapes, err)
		}
		if want := len(r.Members) - 1; none.Have != want {
			t.Errorf("%d shapes: room for %d of %d members (at most: %t), want %d", shapes, none.Have, len(r.Members), none.AtMost, want)
		}
	}
}
