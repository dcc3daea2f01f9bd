// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// mixedCluster has machines of 8, 8, 4 and 8 GPUs, one of them with a GPU lost.
func mixedCluster(tb testing.TB) []Node {
	tb.Helper()
	out := clusterOf(tb, "dgx1-v100", "v100-pcie-8", bridged, "dgx1-v100", "l40s-8")
	hurt := clusterOf(tb, "dgx1-v100")[0]
	hurt.Graph.GPUs[5].Unhealthy = "test"
	return append(out, hurt)
}

// randomJobs draws a trace with whole seconds, so that events meet.
func randomJobs(rng *rand.Rand, n int) []Job {
	out := make([]Job, n)
	for i := range out {
		out[i] = Job{
			ArrivalS: float64(rng.IntN(3 * n)), DurationS: float64(1 + rng.IntN(60)),
			GPUs: 1 + rng.IntN(9), Pods: 1 + rng.IntN(3)/2*rng.IntN(3), // up to 9 GPUs: more than any machine has
		}
	}
	return out
}

// TestGPUExclusivity: no GPU is held twice whatever the policy.
func TestGPUExclusivity(t *testing.T) {
	nodes := mixedCluster(t)
	for _, name := range Policies() {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(8) {
				c := Config{Nodes: nodes, Jobs: randomJobs(rand.New(rand.NewPCG(seed, 1)), 150), Policy: name, Seed: seed}
				if seed%2 == 1 {
					c.PodPolicy = nvtopo.PolicySingleNUMANode
				}
				r, seen := watched(t, c)
				checkHistory(t, &c, r, seen)
			}
		})
	}
}

// checkHistory replays placements and judges them by the rules of a replay.
func checkHistory(t *testing.T, c *Config, r *Result, seen []Placement) {
	t.Helper()
	used := make([]nvtopo.Mask, len(c.Nodes))
	var running []Placement
	pods := map[int]int{}
	for i, p := range seen {
		if i > 0 && p.StartS < seen[i-1].StartS {
			t.Fatalf("%+v starts before %+v, which was placed earlier", p, seen[i-1])
		}
		running = slices.DeleteFunc(running, func(o Placement) bool {
			if o.EndS <= p.StartS {
				used[o.Node] &^= o.Set
			}
			return o.EndS <= p.StartS
		})
		j, g := &c.Jobs[p.Job], c.Nodes[p.Node].Graph
		switch {
		case p.Set&used[p.Node] != 0:
			t.Fatalf("%+v takes GPUs that others hold: %b", p, used[p.Node])
		case p.Set&^g.Healthy() != 0 || p.Set.Len() != j.GPUs:
			t.Fatalf("%+v is not %d healthy GPUs", p, j.GPUs)
		case p.EndS != p.StartS+j.DurationS:
			t.Fatalf("%+v does not last %v s", p, j.DurationS)
		case c.PodPolicy == nvtopo.PolicySingleNUMANode && j.GPUs <= 4 && len(g.NUMAOf(p.Set)) != 1:
			t.Fatalf("%+v spans NUMA nodes although its policy forbids", p)
		case p.Pod != pods[p.Job]:
			t.Fatalf("%+v: pod %d of the job comes next", p, pods[p.Job])
		case p.Pod > 0 && p.StartS != seen[i-1].StartS:
			t.Fatalf("%+v does not start with its gang", p)
		}
		used[p.Node] |= p.Set
		running = append(running, p)
		pods[p.Job]++
	}
	left := 0
	for i, j := range c.Jobs {
		switch pods[i] {
		case j.Pods:
		case 0:
			left += j.Pods
		default:
			t.Errorf("%d of the %d pods of job %d started", pods[i], j.Pods, i)
		}
	}
	if left != r.Unplaceable+r.Unfinished {
		t.Errorf("%d pods never started, but unplaceable are %d and unfinished %d", left, r.Unplaceable, r.Unfinished)
	}
	// Counting GPUs can insist for ever on a node whose kubelet refuses the pod.
	if r.Unfinished > 0 && (c.Policy == Ours || c.PodPolicy == nvtopo.PolicyBestEffort) {
		t.Errorf("%d pods were left waiting for an empty cluster that has room", r.Unfinished)
	}
	if r.AllocationRatio < 0 || r.AllocationRatio > 1 {
		t.Errorf("allocation ratio %v", r.AllocationRatio)
	}
}

// TestCountingPolicyReplay: counting policies give the result of a naive replay. It compares with a
// replay that looks at every second, scans all jobs and all nodes, and remembers nothing.
func TestCountingPolicyReplay(t *testing.T) {
	nodes := mixedCluster(t)
	for _, name := range []string{"spread", "binpack", "fgd"} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(20) {
				c := Config{Nodes: nodes, Jobs: randomJobs(rand.New(rand.NewPCG(seed, 2)), 80), Policy: name + "+lowest"}
				r, got := watched(t, c)
				want, levels := naive(&c, name)
				if diff := gocmp.Diff(want, got); diff != "" {
					t.Fatalf("seed %d: placements (-want,+got):\n%s", seed, diff)
				}
				if diff := gocmp.Diff(levels, [2]float64{r.AllocationRatio, r.FGDFragmentation}, approximately); diff != "" {
					t.Fatalf("seed %d: allocation and fragmentation (-want,+got):\n%s", seed, diff)
				}
			}
		})
	}
}

// naive returns the placements and the mean allocation and fragmentation.
func naive(c *Config, rule string) ([]Placement, [2]float64) {
	free := make([]nvtopo.Mask, len(c.Nodes))
	total := 0
	for i := range free {
		free[i] = c.Nodes[i].Graph.Healthy()
		total += free[i].Len()
	}
	var order []int
	mixOf := map[int]float64{}
	pods := 0.0
	for i, j := range c.Jobs {
		room := 0
		for _, f := range free {
			room += f.Len() / j.GPUs
		}
		if room >= j.Pods {
			order = append(order, i)
			mixOf[j.GPUs] += float64(j.Pods)
			pods += float64(j.Pods)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(c.Jobs[a].ArrivalS, c.Jobs[b].ArrivalS) })
	zero, last := c.Jobs[order[0]].ArrivalS, c.Jobs[order[len(order)-1]].ArrivalS
	unusable := func(n int) float64 {
		var sum float64
		for size, share := range mixOf {
			if size > n {
				sum += float64(n) * share / pods
			}
		}
		return sum
	}
	better := func(a, b, gpus int) bool { // is node a better than node b?
		fa, fb := free[a].Len(), free[b].Len()
		switch rule {
		case "spread":
			return fa > fb
		case "binpack":
			return fa < fb
		}
		return unusable(fa-gpus)-unusable(fa) < unusable(fb-gpus)-unusable(fb)-1e-9
	}
	var out, running []Placement
	var held, unused, wasted float64
	done := map[int]bool{}
	for now := zero; len(done) < len(order); now++ {
		running = slices.DeleteFunc(running, func(p Placement) bool {
			if p.EndS == now-zero {
				free[p.Node] |= p.Set
			}
			return p.EndS == now-zero
		})
		for _, i := range order {
			j := &c.Jobs[i]
			if done[i] || j.ArrivalS > now {
				continue
			}
			before := slices.Clone(free)
			var gang []Placement
			for pod := range j.Pods {
				at := -1
				for n := range free {
					if free[n].Len() >= j.GPUs && (at < 0 || better(n, at, j.GPUs)) {
						at = n
					}
				}
				if at < 0 {
					break
				}
				set := nvtopo.MaskOf(free[at].Positions()[:j.GPUs]...)
				free[at] &^= set
				gang = append(gang, Placement{Job: i, Pod: pod, Node: at, Set: set, StartS: now - zero, EndS: now - zero + j.DurationS})
			}
			if len(gang) < j.Pods {
				free = before
				continue
			}
			done[i] = true
			out, running = append(out, gang...), append(running, gang...)
		}
		if now < last {
			for _, f := range free {
				unused += float64(f.Len())
				wasted += unusable(f.Len())
			}
			held += float64(total)
		}
	}
	return out, [2]float64{(held - unused) / held, wasted / unused}
}

// TestOursBestClass: our policy takes the best class that any node has. It follows the placements
// and compares each with an exact answer of every node.
func TestOursBestClass(t *testing.T) {
	nodes := clusterOf(t, "dgx1-v100", "dgx1-v100", "dgx1-v100")
	tables := nvtopo.NewTables(nodes[0].Graph, nvtopo.DefaultWeights())
	lower := 0
	for seed := range uint64(10) {
		free := []nvtopo.Mask{0xff, 0xff, 0xff}
		var running []Placement
		r := mustRun(t, Config{
			Nodes: nodes, Jobs: randomJobs(rand.New(rand.NewPCG(seed, 3)), 200), Policy: Ours,
			Observe: func(p Placement) {
				running = slices.DeleteFunc(running, func(o Placement) bool {
					if o.EndS <= p.StartS {
						free[o.Node] |= o.Set
					}
					return o.EndS <= p.StartS
				})
				var best int64
				k := p.Set.Len()
				for _, f := range free {
					if s, ok := tables.Pick(f, f, k, nvtopo.Constraint{}); ok {
						best = max(best, tables.Ring(s))
					}
				}
				if got := tables.Ring(p.Set); got != best {
					t.Errorf("seed %d: %+v has a ring of %d, a node had %d", seed, p, got, best)
				}
				if tables.Ring(p.Set) < tables.Best(k) {
					lower++
				}
				free[p.Node] &^= p.Set
				running = append(running, p)
			},
		})
		if r.MeanRegretGBps != 0 {
			t.Errorf("seed %d: regret of %v GB/s on machines of one kind", seed, r.MeanRegretGBps)
		}
	}
	if lower == 0 {
		t.Error("no pod ever had to take less than the best: the traces are too light to show anything")
	}
}

// TestDeterminism: equal seeds give equal results, also with tables that other replays have used.
func TestDeterminism(t *testing.T) {
	nodes, shared := mixedCluster(t), &Tables{}
	for _, name := range Policies() {
		t.Run(name, func(t *testing.T) {
			run := func(seed uint64, tables *Tables) ([]Placement, string) {
				trace, err := Synthetic("multigpu50", 400, 1)
				if err != nil {
					t.Fatal(err)
				}
				r, seen := watched(t, Config{Nodes: nodes, Jobs: trace, Policy: name, Load: 0.8, Seed: seed, WarmUp: 0.1, Tables: tables})
				r.Seed = 0
				text, err := json.Marshal(r)
				if err != nil {
					t.Fatal(err)
				}
				return seen, string(text)
			}
			seen, text := run(1, nil)
			again, textAgain := run(1, shared)
			if diff := gocmp.Diff(seen, again); diff != "" || text != textAgain {
				t.Errorf("the same run differs:\n%s\n%s\n%s", diff, text, textAgain)
			}
			other, _ := run(2, shared)
			if random := name[max(0, len(name)-6):] == "random"; random == slices.Equal(seen, other) {
				t.Errorf("draws lots: %v, but with another seed the placements are the same: %v", random, !random)
			}
		})
	}
}

// TestRandomPickDistribution: the random policy picks every set equally often.
func TestRandomPickDistribution(t *testing.T) {
	pick := random(3)
	seen := map[nvtopo.Mask]int{}
	const draws = 12_000
	for range draws {
		s, ok := pick(nil, 0b1011_0100, 2)
		if !ok || s.Len() != 2 || s&^0b1011_0100 != 0 {
			t.Fatalf("set %b", s)
		}
		seen[s]++
	}
	if len(seen) != 6 {
		t.Errorf("%d sets of 6 came", len(seen))
	}
	for s, n := range seen {
		// 2000 expected; six standard deviations of a share of 1/6 are 245.
		if n < 1755 || n > 2245 {
			t.Errorf("set %b came %d times of %d", s, n, draws)
		}
	}
}

// TestPackingWithFours: packing with fours is the best there is.
func TestPackingWithFours(t *testing.T) {
	for _, name := range []string{"dgx1-v100", "v100-pcie-8", bridged, "a6000-8-bridged"} {
		t.Run(name, func(t *testing.T) {
			tables := nvtopo.NewTables(clusterOf(t, name)[0].Graph, nvtopo.DefaultWeights())
			k := newKind(tables, 0)
			var groups []nvtopo.Mask
			full := nvtopo.FullMask(tables.Graph().Len())
			for s := nvtopo.Mask(1); s <= full; s++ {
				if s.Len() == 4 && tables.Ring(s) == tables.Best(4) {
					groups = append(groups, s)
				}
			}
			for free := nvtopo.Mask(0); free <= full; free++ {
				want := 0
				for i, a := range groups {
					if a&^free != 0 {
						continue
					}
					want = max(want, 1)
					if slices.ContainsFunc(groups[i:], func(b nvtopo.Mask) bool { return b&^free == 0 && a&b == 0 }) {
						want = 2
					}
				}
				if got := k.pack(free); got != want {
					t.Fatalf("free %b: %d groups, want %d", free, got, want)
				}
			}
		})
	}
}

// twenty is a machine of 20 GPUs, two sockets of two switches of five.
func twenty(tb testing.TB) Node {
	tb.Helper()
	gpus := make([]nvtopo.GPU, 20)
	links := map[[2]int]nvtopo.Link{}
	for i := range gpus {
		gpus[i] = nvtopo.GPU{UUID: fmt.Sprint("gpu-", i), Index: i, Model: "test", NUMANode: i / 10}
		for j := range gpus {
			level := nvtopo.PCIeSYS
			switch {
			case i == j:
				continue
			case i/5 == j/5:
				level = nvtopo.PCIePXB
			case i/10 == j/10:
				level = nvtopo.PCIeNODE
			}
			links[[2]int{i, j}] = nvtopo.NewLink(nvtopo.Class{PCIe: level}, level, 4, 0, false)
		}
	}
	g, err := nvtopo.NewGraph(gpus, []nvtopo.NUMANode{{ID: 0}, {ID: 1}}, nil, links)
	if err != nil {
		tb.Fatal(err)
	}
	return Node{Name: "twenty", Graph: g}
}

// TestLargeMachines: large machines are replayed. It covers the machines without ready answer
// tables.
func TestLargeMachines(t *testing.T) {
	cases := map[string]struct {
		node      Node
		wantShare float64
	}{
		"16 GPUs, all pairs equal": {clusterOf(t, "dgx2")[0], 1},
		"20 GPUs on four switches": {twenty(t), 0.9},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			trace, err := Synthetic("multigpu50", 300, 1)
			if err != nil {
				t.Fatal(err)
			}
			c := Config{Nodes: []Node{tc.node, tc.node, tc.node}, Jobs: trace, Policy: Ours, Load: 0.8}
			r, seen := watched(t, c)
			checkHistory(t, &c, r, seen)
			if r.BestClassShare < tc.wantShare || r.MeanRegretGBps != 0 {
				t.Errorf("best class %v with a regret of %v GB/s, want %v and 0", r.BestClassShare, r.MeanRegretGBps, tc.wantShare)
			}
		})
	}
}

// BenchmarkReplay takes a policy through 20,000 pods on 64 nodes.
func BenchmarkReplay(b *testing.B) {
	nodes := clusterOf(b, slices.Repeat([]string{"dgx1-v100"}, 64)...)
	trace, err := Synthetic("multigpu50", 20_000, 1)
	if err != nil {
		b.Fatal(err)
	}
	for _, name := range []string{Ours, "binpack+exact", "spread+best-effort"} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				mustRun(b, Config{Nodes: nodes, Jobs: trace, Policy: name, Load: 0.85, Seed: 1, WarmUp: DefaultWarmUp})
			}
		})
	}
}
