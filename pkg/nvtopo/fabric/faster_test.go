// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// measured gives the fabric measured links: inside racks, and between them.
func (f *fleet) measured(t *testing.T, inside, outside Link, overrides []Override, bandwidth map[string]int64) {
	t.Helper()
	s := &Spec{Levels: f.tree.Levels(), Root: outside, Overrides: overrides}
	s.Levels[0].Link = inside
	for n := range f.tree.Len() {
		s.Nodes = append(s.Nodes, NodePath{Node: f.tree.Name(n), Path: []string{f.tree.Domains(1)[f.tree.DomainOf(1, n)].Name}, Bandwidth: bandwidth[f.tree.Name(n)]})
	}
	tr, faults, err := NewTree(s)
	if err != nil || len(faults) > 0 {
		t.Fatal(err, faults)
	}
	f.tree = tr
}

// TestPlaceByEstimate: where all links are known, the time of an all-reduce comes before level and
// domains.
func TestPlaceByEstimate(t *testing.T) {
	gbps := func(n int64) Link { return Link{Bandwidth: n * 1e6, Latency: 5000} }
	between := func(a, b string, n int64) []Override {
		return []Override{{Level: "rack", A: a, B: b, Link: gbps(n)}}
	}
	cases := map[string]struct {
		nodes           string
		pods, gpus      int
		inside, outside int64 // GB/s
		assumed         bool
		overrides       []Override
		bandwidth       map[string]int64 // GB/s, by node
		change          func(r *Request)
		want            string
	}{
		"a rack of slow machines loses against fast ones of two racks": {
			nodes: "rA: l40s-8 l40s-8\nrB: hgx-h200\nrC: hgx-h200", pods: 2, gpus: 8, inside: 100, outside: 50, want: "rB-0 rC-0",
		},
		"but not where the links are assumed": {
			nodes: "rA: l40s-8 l40s-8\nrB: hgx-h200\nrC: hgx-h200", pods: 2, gpus: 8, inside: 100, outside: 50, assumed: true, want: "rA-0 rA-1",
		},
		"nor where the network between the racks costs more": {
			nodes: "rA: l40s-8 l40s-8\nrB: hgx-h200\nrC: hgx-h200", pods: 2, gpus: 8, inside: 100, outside: 5, want: "rA-0 rA-1",
		},
		"a difference within the tolerance leaves it to the level": {
			nodes: "rA: hgx-a100-8 hgx-a100-8\nrB: hgx-h200\nrC: hgx-h200", pods: 2, gpus: 8, inside: 53, outside: 50, want: "rA-0 rA-1",
		},
		"small messages are a matter of latency": {
			nodes: "rA: l40s-8 l40s-8\nrB: hgx-h200\nrC: hgx-h200", pods: 2, gpus: 8, inside: 100, outside: 50,
			change: func(r *Request) { r.MessageBytes = 1 }, want: "rA-0 rA-1",
		},
		"a slow cable between two racks is avoided": {
			nodes: "r0: hgx-h200\nr1: hgx-h200\nr2: hgx-h200", pods: 2, gpus: 8, inside: 50, outside: 50,
			overrides: between("r0", "r1", 1), want: "r0-0 r2-0",
		},
		"and with it the rack that has two of them": {
			nodes: "r0: hgx-h200\nr1: hgx-h200\nr2: hgx-h200", pods: 2, gpus: 8, inside: 50, outside: 50,
			overrides: slices.Concat(between("r0", "r1", 1), between("r0", "r2", 1)), want: "r1-0 r2-0",
		},
		"but taken where there is no other way": {
			nodes: "r0: hgx-h200\nr1: hgx-h200", pods: 2, gpus: 8, inside: 50, outside: 50,
			overrides: between("r0", "r1", 1), want: "r0-0 r1-0",
		},
		"a member that has its node stays, and the others avoid what is slow from there": {
			nodes: "r0: hgx-h200\nr1: hgx-h200\nr2: hgx-h200", pods: 2, gpus: 8, inside: 50, outside: 50,
			overrides: between("r0", "r1", 1), change: func(r *Request) {
				r.Members[0], r.Shapes[0].Nodes[0] = Member{Bound: true}, Supply{}
			}, want: "r0-0 r2-0",
		},
		"a fast cable between two racks is used": {
			nodes: "r0: hgx-h200\nr1: hgx-h200\nr2: hgx-h200", pods: 2, gpus: 8, inside: 50, outside: 25,
			overrides: between("r1", "r2", 100), want: "r1-0 r2-0",
		},
		"nodes that send less than others are avoided": {
			nodes: "r0: hgx-h200 hgx-h200 hgx-h200 hgx-h200", pods: 2, gpus: 8, inside: 400, outside: 50,
			bandwidth: map[string]int64{"r0-0": 12, "r0-1": 400, "r0-2": 50, "r0-3": 400}, want: "r0-1 r0-3",
		},
		"a whole ring on a node is not given up for nothing": {
			nodes: "r0: hgx-h200 hgx-h200", pods: 2, gpus: 4, inside: 50, outside: 50, want: "r0-0+",
		},
		"one model is not mixed for the sake of time": {
			nodes: "r0: l40s-8 l40s-8\nr1: hgx-h200 dgx-h100", pods: 2, gpus: 8, inside: 50, outside: 50, want: "r0-0 r0-1",
		},
		"of a machine the part whose links are fast": {
			nodes: "r0: dgx1-v100\nr1: hgx-h200 hgx-h200", pods: 4, gpus: 2, inside: 400, outside: 400,
			change: func(r *Request) { r.Shapes[0].Kind = 0 }, want: "r1-0+++",
		},
		"the hardware that members prefer comes before the time": {
			nodes: "rA: l40s-8 l40s-8\nrB: hgx-h200\nrC: hgx-h200", pods: 2, gpus: 8, inside: 100, outside: 50,
			change: func(r *Request) { r.preferHardware(0, 1, 1) }, want: "rA-0 rA-1",
		},
		"and before the level": {
			nodes: "rA: l40s-8\nrB: l40s-8\nrC: hgx-h200 hgx-h200", pods: 2, gpus: 8, inside: 100, outside: 50, assumed: true,
			change: func(r *Request) { r.preferHardware(0, 1, 1) }, want: "rA-0 rB-0",
		},
		"but not before the level that the gang prefers": {
			nodes: "rA: l40s-8\nrB: l40s-8\nrC: hgx-h200 hgx-h200", pods: 2, gpus: 8, inside: 100, outside: 50,
			change: func(r *Request) { r.preferHardware(0, 1, 1); r.Preferred = "rack" }, want: "rC-0 rC-1",
		},
		"nor before the one that it requires": {
			nodes: "rA: l40s-8\nrB: l40s-8\nrC: hgx-h200 hgx-h200", pods: 2, gpus: 8, inside: 100, outside: 50,
			change: func(r *Request) { r.preferHardware(0, 1, 100); r.Required = "rack" }, want: "rC-0 rC-1",
		},
		"what is preferred for other reasons comes after the time": {
			nodes: "rA: l40s-8 l40s-8\nrB: hgx-h200\nrC: hgx-h200", pods: 2, gpus: 8, inside: 100, outside: 50,
			change: func(r *Request) {
				r.Shapes[0].Nodes[0].Preference, r.Shapes[0].Nodes[1].Preference = 100, 100
			}, want: "rB-0 rC-0",
		},
		"members that are spread do without": {
			nodes: "r0: hgx-h200\nr1: hgx-h200\nr2: hgx-h200", pods: 2, gpus: 8, inside: 50, outside: 50,
			overrides: between("r0", "r1", 1), change: func(r *Request) { r.SpreadOver = "rack" }, want: "r0-0 r1-0",
		},
		"near others the level comes first": {
			nodes: "r0: l40s-8 l40s-8\nr1: hgx-h200", pods: 1, gpus: 8, inside: 50, outside: 50,
			change: func(r *Request) { r.Near = []int{0} }, want: "r0-0",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := fleetOf(t, "rack", tc.nodes)
			for n := range tc.bandwidth {
				tc.bandwidth[n] *= 1e6
			}
			inside, outside := gbps(tc.inside), gbps(tc.outside)
			inside.Assumed, outside.Assumed = tc.assumed, tc.assumed
			f.measured(t, inside, outside, tc.overrides, tc.bandwidth)
			r := f.request(tc.pods, tc.gpus)
			if tc.change != nil {
				tc.change(r)
			}
			p, err := Place(f.tree, r)
			if got := f.names(p, err); got != tc.want {
				t.Fatalf("got %s, want %s", got, tc.want)
			}
		})
	}
}

// preferHardware has members of the first shape prefer the hardware of the nodes from first to last.
func (r *Request) preferHardware(first, last int, weight int64) {
	for n := first; n <= last; n++ {
		s := &r.Shapes[0].Nodes[n]
		s.Preference, s.Hardware = weight, weight
	}
}

// TestEstimateBruteForce: a plan's all-reduce is never slower, beyond the tolerance, than that of the
// plan over assumed links, and rarely slower than the best of all ways to place the members.
func TestEstimateBruteForce(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(31, 7))
	rounds, gangs, best, improved := 3000, 0, 0, 0
	if testing.Short() {
		rounds = 300
	}
	for range rounds {
		s, req := randomRings(r)
		tr, faults, err := NewTree(s)
		if err != nil || len(faults) > 0 {
			t.Fatal(err, faults)
		}
		plan, err := Place(tr, req)
		if err != nil {
			continue
		}
		assumed := *s
		assumed.Root.Assumed = true
		assumed.Levels = slices.Clone(s.Levels)
		for i := range assumed.Levels {
			assumed.Levels[i].Link.Assumed = true
		}
		blind, _, _ := NewTree(&assumed)
		other, err := Place(blind, req)
		if err != nil {
			t.Fatal(err)
		}
		gangs++
		got, before, least := ringTime(tr, req, plan.Nodes), ringTime(tr, req, other.Nodes), leastTime(tr, req)
		if got > before*(1+timeTolerance)*(1+1e-9) {
			t.Fatalf("%v takes %v ms, %v of a fabric whose links are assumed %v", plan.Nodes, got, other.Nodes, before)
		}
		if got <= least*(1+timeTolerance)*(1+1e-9) {
			best++
		}
		if got < before {
			improved++
		}
	}
	t.Logf("%d gangs: %d within a tenth of the best way, %d faster than without the network", gangs, best, improved)
	const wantBest = 0.95
	if float64(best) < wantBest*float64(gangs) || improved < gangs/10 {
		t.Errorf("%d gangs: %d within a tenth of the best way, %d faster than without the network", gangs, best, improved)
	}
}

// randomRings is a small fabric of machines with rings and links of a few speeds, and a gang of two to
// five members of eight GPUs.
func randomRings(r *rand.Rand) (*Spec, *Request) {
	speed := func() int64 { return []int64{12, 25, 50, 100}[r.IntN(4)] * 1e6 }
	link := func() Link { return Link{Bandwidth: speed(), Latency: int64(r.IntN(20)) * 1000} }
	links := []Link{link(), link(), link()} // no level is slower than those around it
	slices.SortFunc(links, func(a, b Link) int { return int(a.Bandwidth - b.Bandwidth) })
	s := &Spec{Root: links[0], Levels: []Level{{Name: "spine", Link: links[1]}, {Name: "rack", Link: links[2]}}}
	racks := map[string]bool{}
	nodes := 3 + r.IntN(5)
	for n := range nodes {
		spine := fmt.Sprint("s", r.IntN(2))
		rack := fmt.Sprint("r", r.IntN(2))
		racks[spine+"/"+rack] = true
		node := NodePath{Node: fmt.Sprint("n", n), Path: []string{spine, rack}}
		if r.IntN(4) == 0 {
			node.Bandwidth = speed()
		}
		s.Nodes = append(s.Nodes, node)
	}
	var names []string
	for name := range racks {
		names = append(names, name)
	}
	slices.Sort(names)
	for i, a := range names {
		for _, b := range names[i+1:] {
			if r.IntN(3) == 0 {
				s.Overrides = append(s.Overrides, Override{Level: "rack", A: a, B: b, Link: link()})
			}
		}
	}
	req := &Request{Shapes: []Shape{{GPUs: 8, Nodes: make([]Supply, nodes)}}, Members: make([]Member, 2+r.IntN(4))}
	for n := range nodes {
		ring := []int64{24, 150, 300, 450}[r.IntN(4)] * 1e6
		slots := &Slots{fastest: ring}
		members := r.IntN(3)
		for m := range members {
			slots.divisions = append(slots.divisions, division{used: nvtopo.FullMask(8 * (m + 1)), ring: ring, sets: make([]nvtopo.Mask, m+1)})
		}
		for b := range slots.count {
			slots.count[b] = members
		}
		req.Shapes[0].Nodes[n] = Supply{Slots: slots}
	}
	return s, req
}

// ringTime computes the time of an all-reduce in ms without Tree.Estimate.
func ringTime(t *Tree, r *Request, nodes []int) float64 {
	members := map[int]int{}
	for _, n := range nodes {
		members[n]++
	}
	most, ring := 0, int64(math.MaxInt64)
	for n, m := range members {
		most, ring = max(most, m), min(ring, r.Shapes[0].Nodes[n].Slots.divisions[m-1].ring)
	}
	gpus := float64(8 * most)
	ms := 1e3 * 2 * (gpus - 1) / gpus * 1e9 / (float64(ring) * 1e3)
	if n := float64(len(members)); n > 1 {
		bandwidth, latency := int64(math.MaxInt64), int64(0)
		for i, a := range nodes {
			if b := nodes[(i+1)%len(nodes)]; a != b {
				l := t.Between(a, b)
				bandwidth, latency = min(bandwidth, l.Bandwidth), max(latency, l.Latency)
			}
		}
		ms += 1e3 * (2*(n-1)/n*1e9/(float64(bandwidth)*1e3) + 2*(n-1)*float64(latency)/1e9)
	}
	return ms
}

// leastTime tries all ways to give nodes members, laid in the order of the tree.
func leastTime(t *Tree, r *Request) float64 {
	least := math.Inf(1)
	var try func(from, left int, nodes []int)
	try = func(from, left int, nodes []int) {
		if left == 0 {
			least = min(least, ringTime(t, r, nodes))
			return
		}
		if from == t.Len() {
			return
		}
		for m := range min(left, r.Shapes[0].Nodes[from].Members()) + 1 {
			try(from+1, left-m, append(slices.Clone(nodes), slices.Repeat([]int{from}, m)...))
		}
	}
	try(0, len(r.Members), nil)
	return least
}

// TestNodeBandwidth: a link is no faster than either node can send, also where it has an override.
func TestNodeBandwidth(t *testing.T) {
	tr, _, err := NewTree(&Spec{
		Levels:    []Level{{Name: "rack", Link: Link{Bandwidth: 100}}},
		Nodes:     []NodePath{{Node: "a", Path: []string{"r0"}, Bandwidth: 10}, {Node: "b", Path: []string{"r0"}}, {Node: "c", Path: []string{"r1"}, Bandwidth: 70}},
		Overrides: []Override{{Level: "rack", A: "r0", B: "r1", Link: Link{Bandwidth: 90}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	got := []int64{tr.Between(0, 1).Bandwidth, tr.Between(1, 2).Bandwidth, tr.Between(2, 0).Bandwidth}
	if d := cmp.Diff([]int64{10, 70, 10}, got); d != "" {
		t.Errorf("(-want, +got):\n%s", d)
	}
}
