// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// machine has n GPUs of a model with links that link says.
func machine(tb testing.TB, n int, model string, link func(i, j int) nvtopo.Link) *nvtopo.Graph {
	tb.Helper()
	gpus, links := make([]nvtopo.GPU, n), map[[2]int]nvtopo.Link{}
	for i := range gpus {
		gpus[i] = nvtopo.GPU{Index: i, Model: model}
		for j := range i {
			links[[2]int{j, i}] = link(j, i)
		}
	}
	g, err := nvtopo.NewGraph(gpus, nil, nil, links)
	if err != nil {
		tb.Fatal(err)
	}
	return g
}

func wire(bandwidth, latency int64) nvtopo.Link {
	return nvtopo.Link{Class: nvtopo.Class{Kind: nvtopo.KindNVLink, Lanes: 1}, Bandwidth: bandwidth, Latency: latency}
}

// permute visits the list with all orders of what comes from a position on.
func permute(list []int, from int, visit func([]int)) {
	if from == len(list) {
		visit(list)
		return
	}
	for i := from; i < len(list); i++ {
		list[from], list[i] = list[i], list[from]
		permute(list, from+1, visit)
		list[from], list[i] = list[i], list[from]
	}
}

// fastest is AllReduce by trying every ring.
func fastest(g *nvtopo.Graph, set nvtopo.Mask, bytes float64) float64 {
	members := set.Positions()
	k := len(members)
	if k < 2 {
		return 0
	}
	least := math.Inf(1)
	permute(members, 1, func(ring []int) {
		bandwidth, latency := int64(math.MaxInt64), int64(0)
		for i, a := range ring {
			l := g.Link(a, ring[(i+1)%k])
			bandwidth, latency = min(bandwidth, l.Bandwidth), max(latency, l.Latency)
		}
		if bandwidth > 0 {
			least = min(least, 2*float64(k-1)*(bytes/float64(k)/(1e3*float64(bandwidth))+float64(latency)/1e9))
		}
	})
	return least
}

// TestAllReduce: the fastest ring is that of a brute force, on random machines and sets.
func TestAllReduce(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	infinite := 0
	for step := range 400 {
		n := 2 + rng.IntN(6)
		g := machine(t, n, "NVIDIA H200", func(int, int) nvtopo.Link {
			return wire([]int64{0, 24_000_000, 50_000_000, 450_000_000}[rng.IntN(4)], []int64{1000, 2000, 9000}[rng.IntN(3)])
		})
		set := nvtopo.Mask(rng.Uint64()) & nvtopo.FullMask(n)
		bytes := []float64{64e3, 1e9}[rng.IntN(2)]
		got, err := AllReduce(g, set, bytes)
		if err != nil {
			t.Fatal(err)
		}
		want := fastest(g, set, bytes)
		if math.IsInf(want, 1) {
			infinite++
		}
		if got != want && !(math.Abs(got-want) <= 1e-12*want) {
			t.Errorf("step %d, GPUs %v, %g bytes: %g s, by brute force %g", step, set.Positions(), bytes, got, want)
		}
	}
	if infinite < 10 || infinite > 300 {
		t.Errorf("%d of 400 have no ring of known bandwidth: too few or too many to show anything", infinite)
	}
	if _, err := AllReduce(machine(t, 17, "x", func(int, int) nvtopo.Link { return wire(1, 1) }), nvtopo.FullMask(17), 1); err == nil {
		t.Error("a set of 17 is judged")
	}
}

// TestSlowdown: runs are as long as data sheet and links say.
func TestSlowdown(t *testing.T) {
	cases := map[string]struct {
		model              string
		gpus               int
		bandwidth, latency int64
		want               float64
	}{
		"the reference":                     {"NVIDIA H100 80GB HBM3", 8, 450_000_000, 1000, 1},
		"one GPU has no links":              {"NVIDIA A100-SXM4-80GB", 1, 1, 1, 989.0 / 312},
		"half the bandwidth of the network": {"NVIDIA H200", 2, 225_000_000, 2000, 0.9 + 2*0.1},
		"a longer name is another GPU":      {"NVIDIA H200 NVL", 1, 1, 1, 989.0 / 835},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			g := machine(t, 8, tc.model, func(int, int) nvtopo.Link { return wire(tc.bandwidth, tc.latency) })
			got, err := New(DefaultBytes).Slowdown(g, nvtopo.FullMask(tc.gpus))
			if err != nil || math.Abs(got-tc.want) > 1e-9 {
				t.Errorf("slowdown %v (%v), want %v", got, err, tc.want)
			}
		})
	}
	g := machine(t, 2, "Unheard Of 1", func(int, int) nvtopo.Link { return wire(1, 1) })
	if s, err := New(DefaultBytes).Slowdown(g, 1); err == nil {
		t.Errorf("a GPU without a data sheet has slowdown %v", s)
	}
}

// TestVerdict: the verdict of four pods is that by hand.
func TestVerdict(t *testing.T) {
	g := machine(t, 4, "NVIDIA H200", func(i, j int) nvtopo.Link {
		if i/2 == j/2 {
			return wire(500_000_000, 0)
		}
		return wire(50_000_000, 0)
	})
	j := New(1e9)
	for _, p := range []struct {
		set       nvtopo.Mask
		wait, run float64
	}{{0b0001, 1, 10}, {0b0011, 2, 20}, {0b0101, 4, 20}, {0b1111, 8, 40}} {
		if err := j.Add(g, p.set, p.wait, p.run); err != nil {
			t.Fatal(err)
		}
	}
	// Two GPUs: 1 GB over the link; four: 1.5 GB.
	want := &Verdict{
		AllReduceMS: (2*2 + 2*20 + 4*30) / 8.0, CompletionS: (11 + 2*22 + 2*24 + 4*48) / 9.0, LargestWaitS: 8,
		BySize: map[int]SizeVerdict{
			1: {Pods: 1, MeanWaitS: 1, P95WaitS: 1, CompletionS: 11},
			2: {Pods: 2, AllReduceMS: 11, MeanWaitS: 3, P95WaitS: 4, CompletionS: 23},
			4: {Pods: 1, AllReduceMS: 30, MeanWaitS: 8, P95WaitS: 8, CompletionS: 48},
		},
	}
	if diff := cmp.Diff(want, j.Verdict(), cmpopts.EquateApprox(1e-12, 0)); diff != "" {
		t.Errorf("verdict (-want,+got):\n%s", diff)
	}
}
