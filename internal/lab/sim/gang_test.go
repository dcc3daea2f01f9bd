// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
)

// racked puts nodes into a fabric: "spine/rack" of each, in the order of the nodes.
func racked(tb testing.TB, nodes []Node, paths ...string) *fabric.Tree {
	tb.Helper()
	spec := &fabric.Spec{Levels: []fabric.Level{{Name: "spine"}, {Name: "rack"}}}
	for i, p := range paths {
		spec.Nodes = append(spec.Nodes, fabric.NodePath{Node: nodes[i].Name, Path: strings.Split(p, "/")})
	}
	t, faults, err := fabric.NewTree(spec)
	if err != nil || len(faults) > 0 {
		tb.Fatal(err, faults)
	}
	return t
}

// twoRacks are nodes of 8 GPUs, four on two NUMA nodes each. Those of even number are in the
// first rack, the others in the second, of so many nodes each.
func twoRacks(tb testing.TB, each int) Config {
	tb.Helper()
	c := Config{Nodes: clusterOf(tb, slices.Repeat([]string{"dgx-h100"}, 2*each)...)}
	var paths []string
	for i := range c.Nodes {
		paths = append(paths, fmt.Sprintf("s/r%d", i%2))
	}
	c.Fabric = racked(tb, c.Nodes, paths...)
	return c
}

// nodesOf lists by job the nodes of its pods, and when it started.
func nodesOf(seen []Placement, n int) (nodes [][]int, starts []float64) {
	nodes, starts = make([][]int, n), make([]float64, n)
	for _, p := range seen {
		nodes[p.Job] = append(nodes[p.Job], p.Node)
		starts[p.Job] = p.StartS
	}
	for _, of := range nodes {
		slices.Sort(of)
	}
	return nodes, starts
}

// TestGangReplayByHand: gangs are replayed as by hand.
func TestGangReplayByHand(t *testing.T) {
	type nodes = [][]int // by job
	cases := map[string]struct {
		each   int   // nodes of each of two racks, whose numbers are even and odd
		jobs   []Job // arrival, duration, GPUs, pods
		want   nodes
		others map[string]nodes // of policies that do something else
	}{
		"an empty cluster: one rack": {
			each: 4, jobs: jobs([4]float64{0, 9, 8, 4}),
			want:   nodes{{0, 2, 4, 6}},
			others: map[string]nodes{"first-fit": {{0, 1, 2, 3}}},
		},
		"the rack that is tightest": {
			each: 4, jobs: jobs([4]float64{0, 9, 8, 2}, [4]float64{1, 9, 8, 4}, [4]float64{2, 9, 8, 2}),
			want:   nodes{{0, 2}, {1, 3, 5, 7}, {4, 6}},
			others: map[string]nodes{"first-fit": {{0, 1}, {2, 3, 4, 5}, {6, 7}}},
		},
		"no rack has room: as many as possible in one": {
			each: 4, jobs: jobs([4]float64{0, 9, 8, 3}, [4]float64{1, 9, 8, 2}, [4]float64{2, 9, 8, 3}),
			want:   nodes{{0, 2, 4}, {1, 3}, {5, 6, 7}},
			others: map[string]nodes{"first-fit": {{0, 1, 2}, {3, 4}, {5, 6, 7}}},
		},
		"several pods on a node": {
			each: 2, jobs: jobs([4]float64{0, 9, 4, 2}, [4]float64{1, 9, 4, 4}),
			want:   nodes{{0, 0}, {1, 1, 3, 3}},
			others: map[string]nodes{"first-fit": {{0, 0}, {1, 1, 2, 2}}},
		},
		"a pod of no gang goes where a rack is spoiled, or to the first of the tightest nodes": {
			each: 3, jobs: jobs([4]float64{0, 9, 8, 2}, [4]float64{1, 9, 1, 1}),
			want:   nodes{{0, 2}, {1}},
			others: map[string]nodes{Ours: {{0, 2}, {4}}, "first-fit": {{0, 1}, {2}}},
		},
		"whole racks stay whole": {
			each: 2, jobs: jobs([4]float64{0, 9, 8, 1}, [4]float64{1, 9, 8, 1}, [4]float64{2, 9, 8, 2}),
			want:   nodes{{0}, {1}, {2, 3}},
			others: map[string]nodes{Ours: {{0}, {2}, {1, 3}}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for _, p := range GangPolicies() {
				c := twoRacks(t, tc.each)
				c.Jobs, c.GangPolicy = tc.jobs, p
				_, seen := watched(t, c)
				got, _ := nodesOf(seen, len(tc.jobs))
				want, other := tc.others[p]
				if !other {
					want = tc.want
				}
				if diff := gocmp.Diff(want, got); diff != "" {
					t.Errorf("%s: nodes by job (-want,+got):\n%s", p, diff)
				}
			}
		})
	}
}

// TestGangPatience: patience waits for a better level.
func TestGangPatience(t *testing.T) {
	cases := map[string]struct {
		each      int
		patience  float64
		jobs      []Job
		wantNodes []int // of the last job
		wantStart float64
	}{
		"none: at once, in both racks": {
			each: 4, jobs: jobs([4]float64{0, 60, 8, 3}, [4]float64{0, 900, 8, 3}, [4]float64{1, 9, 8, 2}),
			wantNodes: []int{6, 7}, wantStart: 1,
		},
		"a rack becomes free in time": {
			each: 4, patience: 300, jobs: jobs([4]float64{0, 60, 8, 3}, [4]float64{0, 900, 8, 3}, [4]float64{1, 9, 8, 2}),
			wantNodes: []int{0, 2}, wantStart: 60,
		},
		"nothing becomes free: the plan of now when patience ends": {
			each: 4, patience: 300, jobs: jobs([4]float64{0, 800, 8, 3}, [4]float64{0, 900, 8, 3}, [4]float64{1, 9, 8, 2}),
			wantNodes: []int{6, 7}, wantStart: 301,
		},
		"it runs from when there is room": {
			each: 4, patience: 300,
			jobs:      jobs([4]float64{0, 2000, 8, 3}, [4]float64{0, 3000, 8, 3}, [4]float64{0, 500, 8, 1}, [4]float64{0, 500, 8, 1}, [4]float64{1, 9, 8, 2}),
			wantNodes: []int{6, 7}, wantStart: 800,
		},
		"and for all that wait alike, not for one after the other": {
			each: 5, patience: 300,
			jobs: jobs([4]float64{0, 1000, 8, 3}, [4]float64{0, 1000, 8, 3},
				// Two are left in each rack: room for one of these, which starts at 310.
				[4]float64{10, 50, 8, 3}, [4]float64{20, 50, 8, 3}),
			wantNodes: []int{6, 7, 8}, wantStart: 360,
		},
		"a gang larger than a rack waits for nothing": {
			each: 2, patience: 300, jobs: jobs([4]float64{0, 9, 8, 3}), wantNodes: []int{0, 1, 2},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := twoRacks(t, tc.each)
			c.Jobs, c.GangPolicy, c.PatienceS = tc.jobs, Ours, tc.patience
			_, seen := watched(t, c)
			nodes, starts := nodesOf(seen, len(tc.jobs))
			last := len(tc.jobs) - 1
			if diff := gocmp.Diff(tc.wantNodes, nodes[last]); diff != "" || starts[last] != tc.wantStart {
				t.Errorf("started at %v s, want %v; nodes (-want,+got):\n%s", starts[last], tc.wantStart, diff)
			}
		})
	}
}

func TestGangMeasures(t *testing.T) {
	// A gang of two nodes and one of three that waits for it: only two are left.
	trace := jobs([4]float64{0, 10, 8, 2}, [4]float64{4, 10, 8, 3})
	one, half := map[string]float64{"spine": 1, "rack": 1}, map[string]float64{"spine": 1, "rack": 0}
	cases := map[string]struct {
		policy string
		want   GangResult
	}{
		"ours": {Ours, GangResult{
			Count: 2, OneDomainShare: one, DomainsOverFewest: one, MeanWaitSeconds: 3,
		}},
		// The first is in both racks though one had room: a level lost, and twice the racks. The
		// second cannot be in one rack at all.
		"first fit": {"first-fit", GangResult{
			Count: 2, OneDomainShare: half, DomainsOverFewest: map[string]float64{"spine": 1, "rack": 1.5}, MeanWaitSeconds: 3, LevelRegret: 0.5,
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := twoRacks(t, 2)
			c.Jobs, c.GangPolicy = trace, tc.policy
			if diff := gocmp.Diff(&tc.want, mustRun(t, c).Gangs); diff != "" {
				t.Errorf("(-want,+got):\n%s", diff)
			}
		})
	}
}

// TestRefusedCountedPlans leaves two free GPUs on each NUMA node of the first node:
// no place for a pod that wants four on one.
func TestRefusedCountedPlans(t *testing.T) {
	trace := jobs(
		[4]float64{0, 10, 2, 1}, [4]float64{0, 100, 2, 1}, [4]float64{0, 10, 2, 1}, [4]float64{0, 100, 2, 1}, // the first node
		[4]float64{20, 9, 4, 3})
	for _, p := range GangPolicies() {
		c := twoRacks(t, 1)
		c.Jobs, c.GangPolicy, c.PodPolicy = trace, p, nvtopo.PolicySingleNUMANode
		r, seen := watched(t, c)
		checkHistory(t, &c, r, seen)
		want := 1
		if p == Ours {
			want = 0
		}
		_, starts := nodesOf(seen, len(trace))
		if r.Gangs.NotCarriedOut != want || starts[4] != 100 {
			t.Errorf("%s: %d plans not carried out, want %d; started at %v, want 100", p, r.Gangs.NotCarriedOut, want, starts[4])
		}
	}
}

// randomFabric is the mixed cluster in racks of all sizes, one node alone.
func randomFabric(tb testing.TB, rng *rand.Rand, nodes []Node) *fabric.Tree {
	tb.Helper()
	var paths []string
	for range nodes {
		path := fmt.Sprintf("s%d/r%d", rng.IntN(2), rng.IntN(2))
		if rng.IntN(6) == 0 {
			path = "/"
		}
		paths = append(paths, path)
	}
	return racked(tb, nodes, paths...)
}

// TestGangAtomicity: gangs are whole and no GPU is held twice.
func TestGangAtomicity(t *testing.T) {
	nodes := append(mixedCluster(t), mixedCluster(t)...)
	for i := range nodes {
		nodes[i].Name = fmt.Sprint("node-", i)
	}
	for _, name := range GangPolicies() {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(12) {
				rng := rand.New(rand.NewPCG(seed, 4))
				trace := randomJobs(rng, 150)
				for i := range trace {
					trace[i].Pods += rng.IntN(4) * rng.IntN(3)
				}
				c := Config{Nodes: nodes, Jobs: trace, Policy: name, GangPolicy: name, Fabric: randomFabric(t, rng, nodes)}
				if seed%2 == 1 {
					c.PodPolicy = nvtopo.PolicySingleNUMANode
				}
				if name == Ours && seed%3 == 1 {
					c.PatienceS = 20
				}
				if name == Ours && seed%4 > 1 {
					c.DrainAfterS = 30
				}
				r, seen := watched(t, c)
				checkHistory(t, &c, r, seen)
				checkGangResult(t, &c, r.Gangs)
			}
		})
	}
}

func checkGangResult(t *testing.T, c *Config, g *GangResult) {
	t.Helper()
	for level, over := range g.DomainsOverFewest {
		if over < 1 || g.OneDomainShare[level] < 0 || g.OneDomainShare[level] > 1 {
			t.Errorf("%s: %v of the fewest domains, share %v", level, over, g.OneDomainShare[level])
		}
	}
	switch {
	case g.Count == 0 || g.LevelRegret < 0 || g.MeanWaitSeconds < 0:
		t.Errorf("%+v", g)
	case c.GangPolicy == Ours && (g.LevelRegret != 0 && c.DrainAfterS == 0 || g.NotCarriedOut != 0):
		t.Errorf("ours: a regret of %v levels, %d plans not carried out", g.LevelRegret, g.NotCarriedOut)
	}
}

// TestGangDeterminism: equal seeds give equal gangs.
func TestGangDeterminism(t *testing.T) {
	c := twoRacks(t, 8)
	var err error
	if c.Jobs, err = Synthetic("philly", 2000, 3); err != nil {
		t.Fatal(err)
	}
	for _, name := range GangPolicies() {
		run := func() ([]Placement, string) {
			c := c
			c.GangPolicy, c.Load, c.WarmUp = name, 0.9, 0.1
			r, seen := watched(t, c)
			text, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			return seen, string(text)
		}
		seen, text := run()
		again, textAgain := run()
		if diff := gocmp.Diff(seen, again); diff != "" || text != textAgain {
			t.Errorf("%s: the same run differs:\n%s\n%s\n%s", name, diff, text, textAgain)
		}
	}
}

// TestSiteCounts: the counts of a site are those of its nodes. It changes nodes at random and
// counts everything anew.
func TestSiteCounts(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	nodes := append(mixedCluster(t), mixedCluster(t)...)
	for i := range nodes {
		nodes[i].Name = fmt.Sprint("node-", i)
	}
	for range 20 {
		c := Config{Nodes: nodes, Jobs: jobs([4]float64{0, 1, 2, 2}, [4]float64{0, 1, 4, 2}), Fabric: randomFabric(t, rng, nodes), GangPolicy: Ours}
		r, err := newReplay(&c)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.prepare(t.Context()); err != nil {
			t.Fatal(err)
		}
		for range 200 {
			at := rng.IntN(len(nodes))
			r.change(at, nvtopo.Mask(rng.Uint64())&r.state.nodes[at].healthy)
		}
		checkSite(t, r)
	}
}

func checkSite(t *testing.T, r *replay) {
	t.Helper()
	x, tree := r.site, r.site.tree
	fresh, err := newSite(r.config, &r.state)
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff([]any{fresh.free, fresh.byFree}, []any{x.free, x.byFree}); diff != "" {
		t.Fatalf("free (-counted anew,+kept):\n%s", diff)
	}
	for size, gpus := range r.state.sizes.gpus {
		counted := 0
		for d := range tree.Depth() + 1 {
			want := make([]int, len(tree.Domains(d)))
			for i := range r.state.nodes {
				n := &r.state.nodes[i]
				want[tree.DomainOf(d, x.number[i])] += n.kind.room(n.free(), gpus, nvtopo.Constraint{})
				if d == 0 {
					counted += n.free().Len() / gpus
				}
			}
			if diff := gocmp.Diff(want, x.rooms[size].all.slots[d]); diff != "" {
				t.Fatalf("slots at depth %d (-want,+got):\n%s", d, diff)
			}
		}
		for k, y := range x.rooms[size].one {
			if diff := gocmp.Diff(fresh.rooms[size].one[k].slots, y.slots); diff != "" {
				t.Fatalf("slots of %s (-counted anew,+kept):\n%s", y.models, diff)
			}
		}
		if got := x.counted(gpus); got != counted {
			t.Errorf("counted %d pods of %d GPUs, want %d", got, gpus, counted)
		}
		for pods := 1; pods < 20; pods++ {
			deepest := x.level(size, pods)
			for d := range tree.Depth() + 1 {
				fits := x.some(size, pods, func(y *tally) bool {
					return slices.ContainsFunc(domainsOf(tree, d), func(i int) bool { return y.slots[d][i] >= pods })
				})
				if fits != (deepest >= d) && (fits || deepest <= tree.Depth()) { // a node may be alone, in no domain with a name
					t.Fatalf("%d pods of %d GPUs: a domain at depth %d has room: %v, but the level is %d", pods, gpus, d, fits, deepest)
				}
			}
		}
	}
}

// domainsOf are the domains of a depth that have names.
func domainsOf(tree *fabric.Tree, depth int) (out []int) {
	for i, d := range tree.Domains(depth) {
		if d.Name != "" || depth == 0 {
			out = append(out, i)
		}
	}
	return out
}

// TestGangConfigErrors: invalid gang configurations are refused.
func TestGangConfigErrors(t *testing.T) {
	cases := map[string]struct {
		change func(c *Config)
		want   string
	}{
		"an unknown policy":                {func(c *Config) { c.GangPolicy = "slurm" }, `no gang policy "slurm", want one of ours, kueue`},
		"patience of others":               {func(c *Config) { c.GangPolicy, c.PatienceS = "kueue", 1 }, "patience goes with"},
		"patience without a fabric":        {func(c *Config) { c.Fabric, c.PatienceS = nil, 1 }, "patience goes with"},
		"draining of others":               {func(c *Config) { c.GangPolicy, c.DrainAfterS = "kueue", 1 }, "drain after goes with"},
		"a negative time to drain":         {func(c *Config) { c.DrainAfterS = -1 }, "drain after -1 s"},
		"a negative patience":              {func(c *Config) { c.PatienceS = -1 }, "patience -1 s"},
		"a node too many":                  {func(c *Config) { c.Nodes = append(c.Nodes, c.Nodes[0]) }, "a fabric of 2 nodes for 3 nodes"},
		"a node that is there twice":       {func(c *Config) { c.Nodes[1].Name = c.Nodes[0].Name }, `node "node-0" is there twice`},
		"a node that is not in the fabric": {func(c *Config) { c.Nodes[1].Name = "other" }, `node "other" is not in the fabric`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := twoRacks(t, 1)
			c.Jobs, c.GangPolicy = jobs([4]float64{0, 1, 1, 2}), Ours
			tc.change(&c)
			if _, err := Run(t.Context(), c); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q in it", err, tc.want)
			}
		})
	}
}
