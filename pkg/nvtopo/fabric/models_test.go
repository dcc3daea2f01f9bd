// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

func modelName(model int) string { return fmt.Sprint("model ", model) }

// modelRing returns a model's ring in kB/s, for any part of a machine: the second is as fast as the first
// within the tolerance, and the third four times as fast.
func modelRing(model int) int64 { return []int64{100e6, 105e6, 400e6}[model] }

// TestOneModelBruteForce: the plan is that of the model which the objective takes, and the best of all
// ways on it. If no model has room, each is named with the number that fits there.
func TestOneModelBruteForce(t *testing.T) {
	t.Parallel()
	cases := map[string]func(r *rand.Rand, w *world){
		"nothing but members": func(*rand.Rand, *world) {},
		"two models":          func(_ *rand.Rand, w *world) { w.modelsOf(2) },
		"a required level":    func(r *rand.Rand, w *world) { w.required = r.IntN(w.levels + 2) },
		"preferred nodes":     func(r *rand.Rand, w *world) { w.prefer(r) },
		"preferred models":    func(r *rand.Rand, w *world) { w.preferModels(r) },
		"preferred models, spread": func(r *rand.Rand, w *world) {
			w.preferModels(r)
			w.spread = r.IntN(w.levels + 1)
		},
		"preferred segments": func(r *rand.Rand, w *world) { w.segments(r) },
		"required segments": func(r *rand.Rand, w *world) {
			w.segments(r)
			w.segmentRequired = true
		},
		"near others": func(r *rand.Rand, w *world) { w.beNear(r) },
		"spread":      func(r *rand.Rand, w *world) { w.spread = r.IntN(w.levels + 1) },
		"members that have their nodes, on any model": func(r *rand.Rand, w *world) { w.bind(r) },
	}
	for name, change := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(31, 4))
			rounds, placed := 1500, 0
			if testing.Short() {
				rounds = 150
			}
			for range rounds {
				w := randomWorld(r)
				for i := range w.nodes {
					w.nodes[i].model = r.IntN(3)
				}
				change(r, w)
				if compareByModel(t, w) {
					placed++
				}
			}
			if placed < rounds/10 {
				t.Errorf("only %d of %d gangs could be placed at all", placed, rounds)
			}
		})
	}
}

// modelsOf leaves so many models.
func (w *world) modelsOf(n int) {
	for i := range w.nodes {
		w.nodes[i].model %= n
	}
}

// preferModels has members prefer hardware: models, and some of their nodes more than others.
func (w *world) preferModels(r *rand.Rand) {
	w.prefer(r)
	weights := []int64{int64(r.IntN(3)), int64(r.IntN(3)), int64(r.IntN(3))}
	for i := range w.nodes {
		n := &w.nodes[i]
		n.hard = weights[n.model]
		if r.IntN(4) == 0 {
			n.hard++
		}
		n.like += n.hard
	}
}

// hardware is how much members placed so prefer the hardware.
func (w *world) hardware(x []int) (sum int64) {
	for i, members := range x {
		sum += w.nodes[i].hard * int64(members)
	}
	return sum
}

// compareByModel reports whether there was a plan at all.
func compareByModel(t *testing.T, w *world) bool {
	t.Helper()
	tr, req := w.request(t)
	req.Shapes[0].Kind = 1
	offers, plans, rooms := make([]*offer, 3), make([]*Plan, 3), map[string]int{}
	for m := range offers {
		alone := w.on(m)
		if !slices.ContainsFunc(alone.nodes, func(n worldNode) bool { return n.count[4] > 0 }) {
			continue
		}
		want, found := alone.best()
		on := *req
		on.Shapes = []Shape{{GPUs: 1, Nodes: slices.Clone(req.Shapes[0].Nodes)}}
		for n := range on.Shapes[0].Nodes {
			if on.Shapes[0].Nodes[n].Slots.model != modelName(m) {
				on.Shapes[0].Nodes[n] = Supply{}
			}
		}
		plan, err := Place(tr, &on)
		var none *UnplaceableError
		switch {
		case errors.As(err, &none) && !found:
			rooms[strings.ReplaceAll(modelName(m), " ", "-")] = none.Have
			continue
		case err != nil || !found:
			t.Fatalf("model %d: %v, %v, but %v\n%s", m, plan, err, found, w)
		}
		x := alone.placed(tr, &on, plan)
		got := alone.judge(x)
		if alone.compare(got, want) != 0 {
			t.Fatalf("model %d, placed %v: got %+v, want %+v\n%s", m, x, got, want, w)
		}
		offers[m], plans[m] = &offer{judged: got, placed: w.byPath(tr, &on, plan), ms: allReduce(x, m), hard: w.hardware(x)}, plan
	}
	plan, err := Place(tr, req)
	best := w.bestOffer(offers)
	if best < 0 {
		_, mixed := w.best()
		checkRefusal(t, w, err, rooms, mixed)
		return false
	}
	if plan != nil {
		plan.Others = nil // of one model alone there are none
	}
	if d := cmp.Diff(plans[best], plan); d != "" || err != nil {
		t.Fatalf("not the plan of model %d (-want, +got): %v\n%s\n%s", best, err, d, w)
	}
	return true
}

// allReduce is the time inside the nodes, of which the network is not known: of the node that has the
// most members, of one GPU each.
func allReduce(x []int, model int) float64 {
	if m := float64(slices.Max(x)); m > 1 {
		return 2 * (m - 1) / m / float64(modelRing(model))
	}
	return 0
}

// byPath is how many members the plan has on each node of the tree, negated: the plan whose first
// members are on earlier nodes comes first.
func (w *world) byPath(tr *Tree, r *Request, p *Plan) []int {
	x := make([]int, tr.Len())
	for rank := range r.Members {
		x[p.Nodes[rank]]++
	}
	return x
}

func checkRefusal(t *testing.T, w *world, err error, rooms map[string]int, mixed bool) {
	t.Helper()
	var none *UnplaceableError
	if !errors.As(err, &none) {
		t.Fatalf("%v, but there is no way\n%s", err, w)
	}
	if len(rooms) < 2 { // there is nothing to choose
		return
	}
	got := map[string]int{}
	for _, m := range none.Models {
		got[m.Model] = m.Have
	}
	if d := cmp.Diff(rooms, got); d != "" || none.MixedFits != mixed {
		t.Fatalf("%q, on several models %v (-want, +got):\n%s\n%s", err, mixed, d, w)
	}
}

// TestOneModelOnly: where there is one model, plans are those without a look at it.
func TestOneModelOnly(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(31, 5))
	for range 500 {
		w := randomWorld(r)
		if r.IntN(2) == 0 {
			w.bind(r)
		}
		tr, req := w.request(t)
		want, wantErr := Place(tr, req)
		req.Shapes[0].Kind, req.Shapes[0].Models = 1, [][]string{nil, {modelName(0)}}[r.IntN(2)]
		got, err := Place(tr, req)
		if d := cmp.Diff([]any{want, fmt.Sprint(wantErr)}, []any{got, fmt.Sprint(err)}); d != "" {
			t.Fatalf("(-any, +one model):\n%s\n%s", d, w)
		}
	}
}

// fleet is a fabric with empty machines of several kinds.
type fleet struct {
	*cluster
	tables []*nvtopo.Tables // by node
}

// fleetOf parses lines "domain … : machines", as clusterOf; "two-models" is a machine of 8 GPUs of which
// the last four are of another model.
func fleetOf(t *testing.T, levels, lines string) *fleet {
	t.Helper()
	known := map[string]*nvtopo.Tables{}
	f := &fleet{}
	var machines []string
	masks := strings.Builder{}
	for line := range strings.Lines(lines) {
		path, names, _ := strings.Cut(line, ":")
		list := strings.Fields(names)
		machines = append(machines, list...)
		fmt.Fprintf(&masks, "%s:%s\n", path, strings.Repeat(" ff", len(list)))
	}
	f.cluster = clusterOf(t, "dgx-h100", levels, masks.String())
	for _, name := range machines { // the lines are in the order of the tree
		if known[name] == nil && name == "two-models" {
			g := tables(t, "l40s-8").Graph()
			for i := 4; i < 8; i++ {
				g.GPUs[i].Model = "other"
			}
			known[name] = nvtopo.NewTables(g, nvtopo.DefaultWeights())
		} else if known[name] == nil {
			known[name] = tables(t, name)
		}
		f.tables = append(f.tables, known[name])
	}
	for n := range f.free {
		f.free[n] = nvtopo.FullMask(f.tables[n].Graph().Len())
	}
	return f
}

// request returns a gang of members on one model: a number of members and the GPUs of each, for each pair
// of numbers. The GPUs that one pair takes of a node are not available to the next.
func (f *fleet) request(counts ...int) *Request {
	s := NewSlotCounter()
	supply := func(shape, n int, used nvtopo.Mask, _ []int) Supply {
		return Supply{Slots: s.Slots(&Machine{Tables: f.tables[n], Healthy: 0xff, Free: f.free[n] &^ used}, counts[2*shape+1], nvtopo.Constraint{})}
	}
	r := &Request{Remaining: supply}
	for i := 0; i < len(counts); i += 2 {
		shape := Shape{GPUs: counts[i+1], Kind: 1 + i, Nodes: make([]Supply, len(f.free))}
		for n := range shape.Nodes {
			shape.Nodes[n] = supply(i/2, n, 0, nil)
		}
		r.Shapes = append(r.Shapes, shape)
		for range counts[i] {
			r.Members = append(r.Members, Member{Shape: i / 2})
		}
	}
	return r
}

func TestPlaceByModel(t *testing.T) {
	const (
		alternate = "r0: l40s-8 hgx-h200 l40s-8 hgx-h200 l40s-8 hgx-h200 l40s-8 hgx-h200"
		two       = "rA: l40s-8 l40s-8\nrB: hgx-h200 hgx-h200"
		h200      = "NVIDIA H200"
		l40s      = "NVIDIA L40S"
	)
	cases := map[string]struct {
		nodes  string
		counts []int // members and their GPUs, for each kind
		change func(f *fleet, r *Request)

		want        string
		wantInexact bool
	}{
		"one rack of two models: the faster one": {
			nodes: alternate, counts: []int{4, 8}, want: "r0-1 r0-3 r0-5 r0-7",
		},
		"two racks: the faster one and not the first": {nodes: two, counts: []int{2, 8}, want: "rB-0 rB-1"},
		"a nearer place comes before a faster one": {
			nodes: "rA: l40s-8 l40s-8\nrB: hgx-h200\nrC: hgx-h200", counts: []int{2, 8}, want: "rA-0 rA-1",
		},
		"as fast: the rack that fits best": {
			nodes: "rA: dgx-h100 dgx-h100 dgx-h100\nrB: hgx-h200 hgx-h200", counts: []int{2, 8}, want: "rB-0 rB-1",
		},
		"as fast and as full: the first": {
			nodes: "rA: dgx-h100 dgx-h100\nrB: hgx-h200 hgx-h200", counts: []int{2, 8}, want: "rA-0 rA-1",
		},
		"members of any model: the faster one, if it is as near": {
			nodes: alternate, counts: []int{4, 8}, change: func(_ *fleet, r *Request) { r.Shapes[0].Kind = 0 },
			want: "r0-1 r0-3 r0-5 r0-7",
		},
		"members that have nodes fix the model": {
			nodes: alternate, counts: []int{4, 8}, change: func(_ *fleet, r *Request) {
				r.Members[0], r.Shapes[0].Models = Member{Bound: true}, []string{l40s}
				r.Shapes[0].Nodes[0] = Supply{}
			},
			want: "r0-0 r0-2 r0-4 r0-6",
		},
		"members that have nodes of both: any of them": {
			nodes: "rA: l40s-8 l40s-8 dgx-a100 hgx-h200", counts: []int{3, 8}, change: func(_ *fleet, r *Request) {
				r.Shapes[0].Models = []string{h200, l40s}
			},
			want: "rA-0 rA-1 rA-3",
		},
		"no model has room, several have": {
			nodes: "rA: l40s-8 l40s-8\nrB: hgx-h200", counts: []int{3, 8},
			want: "cluster: 2 of 3 on NVIDIA-L40S, 1 on NVIDIA-H200; allow-mixed-models would fit",
		},
		"not even several have": {
			nodes: "rA: l40s-8 l40s-8\nrB: hgx-h200", counts: []int{4, 8},
			want: "cluster: 2 of 4 on NVIDIA-L40S, 1 on NVIDIA-H200",
		},
		"the members' model has no room": {
			nodes: alternate, counts: []int{3, 8}, change: func(_ *fleet, r *Request) {
				r.Members[0], r.Shapes[0].Models = Member{Bound: true, Node: 1}, []string{h200}
				for _, n := range []int{1, 3, 5} {
					r.Shapes[0].Nodes[n] = Supply{}
				}
			},
			want: "cluster: 2 of 3 on NVIDIA-H200; allow-mixed-models would fit",
		},
		"a machine of two models gives members those of one": {
			nodes: "rA: two-models two-models", counts: []int{2, 4}, change: func(_ *fleet, r *Request) { r.Shapes[0].Models = []string{"other"} },
			want: "rA-0 rA-1",
		},
		"and all of it to members of any": {
			nodes: "rA: two-models two-models", counts: []int{2, 4}, change: func(_ *fleet, r *Request) { r.Shapes[0].Kind = 0 },
			want: "rA-0+",
		},
		"each kind of members has its own model": {
			nodes: "rA: l40s-8 l40s-8 hgx-h200", counts: []int{1, 8, 4, 4}, want: "rA-2 rA-0+ rA-1+", wantInexact: true,
		},
		"one kind of two shapes has one model": {
			nodes: "rA: l40s-8 l40s-8 hgx-h200 hgx-h200 hgx-h200", counts: []int{2, 8, 1, 8},
			change: func(_ *fleet, r *Request) { r.Shapes[1].Kind = r.Shapes[0].Kind },
			want:   "rA-2 rA-3 rA-4", wantInexact: true,
		},
		"spread over racks on one model, however fast": {
			nodes: "rA: l40s-8 hgx-h200\nrB: l40s-8 hgx-h200", counts: []int{2, 8},
			change: func(_ *fleet, r *Request) { r.SpreadOver = "rack" },
			want:   "rA-0 rB-0",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := fleetOf(t, "rack", tc.nodes)
			r := f.request(tc.counts...)
			if tc.change != nil {
				tc.change(f, r)
			}
			p, err := Place(f.tree, r)
			if got := f.names(p, err); got != tc.want {
				t.Fatalf("got %s, want %s", got, tc.want)
			}
			if err == nil && p.Exact == tc.wantInexact && len(r.Shapes) == 1 {
				t.Errorf("exact %v", p.Exact)
			}
		})
	}
}

// TestManyKinds: members of more kinds than combinations of models can be tried have one model each.
func TestManyKinds(t *testing.T) {
	f := fleetOf(t, "rack", "r0: l40s-8 hgx-h200 l40s-8 hgx-h200 l40s-8 hgx-h200\nr1: l40s-8 hgx-h200 l40s-8 hgx-h200")
	r := f.request(2, 4, 2, 3, 2, 2, 2, 1, 1, 4, 1, 3, 1, 2)
	p, err := Place(f.tree, r)
	if err != nil {
		t.Fatal(err)
	}
	of := map[int]string{}
	for rank, m := range r.Members {
		model := f.tables[p.Nodes[rank]].Graph().GPUs[0].Model
		if known, ok := of[m.Shape]; ok && known != model {
			t.Errorf("shape %d has %s and %s", m.Shape, known, model)
		}
		of[m.Shape] = model
	}
	if p.Exact {
		t.Error("said to be exact")
	}
}

// TestAlternatives: a plan reports its model, and the plans on the others.
func TestAlternatives(t *testing.T) {
	f := fleetOf(t, "rack", "rack-1: l40s-8 l40s-8\nrack-2: hgx-h200 hgx-h200\nrack-3: hgx-h200 hgx-h200\nrack-4: dgx-a100")
	r := f.request(2, 8)
	p, err := Place(f.tree, r)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"16 × NVIDIA-H200 in rack-2, 14.1 ms", "rack-1 (NVIDIA-L40S) 156 ms"}
	got := []string{p.Chosen.String()}
	for _, o := range p.Others {
		got = append(got, o.Instead())
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want, +got):\n%s", d)
	}
}

// TestAlternativeText: a plan's summary has all known values.
func TestAlternativeText(t *testing.T) {
	tests := map[string]struct {
		of                    Alternative
		wantChosen, wantOther string
	}{
		"all is known":          {Alternative{Model: "NVIDIA-H200", GPUs: 8, Domain: "rack-2", Millis: 3.5}, "8 × NVIDIA-H200 in rack-2, 3.5 ms", "rack-2 (NVIDIA-H200) 3.5 ms"},
		"beside bound members":  {Alternative{Model: "NVIDIA-H200", GPUs: 8, Domain: "rack-2", Millis: 3.5, Joins: true}, "8 more × NVIDIA-H200 in rack-2, 3.5 ms", "rack-2 (NVIDIA-H200) 3.5 ms"},
		"a bandwidth is not":    {Alternative{Model: "NVIDIA-H200", GPUs: 8, Domain: "cluster"}, "8 × NVIDIA-H200 in cluster", "cluster (NVIDIA-H200)"},
		"a message of a few kB": {Alternative{Model: "NVIDIA-H200", GPUs: 8, Domain: "n0", Millis: 0.02346}, "8 × NVIDIA-H200 in n0, 0.0235 ms", "n0 (NVIDIA-H200) 0.0235 ms"},
		"seconds":               {Alternative{Model: "NVIDIA-H200", GPUs: 8, Domain: "n0", Millis: 12345.6}, "8 × NVIDIA-H200 in n0, 12346 ms", "n0 (NVIDIA-H200) 12346 ms"},
		"members without GPUs":  {Alternative{Domain: "rack-2", Millis: 3.5}, "", ""},
	}
	for name, tc := range tests {
		if got := tc.of.String(); got != tc.wantChosen {
			t.Errorf("%s: chosen %q, want %q", name, got, tc.wantChosen)
		}
		if got := tc.of.Instead(); got != tc.wantOther {
			t.Errorf("%s: instead %q, want %q", name, got, tc.wantOther)
		}
	}
}
