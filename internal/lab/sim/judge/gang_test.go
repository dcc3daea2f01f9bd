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

// TestBottleneck: the bottleneck is that of a brute force, on random machines and sets.
func TestBottleneck(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for step := range 400 {
		n := 2 + rng.IntN(5)
		g := machine(t, n, "NVIDIA H200", func(int, int) nvtopo.Link {
			return wire([]int64{0, 24_000_000, 50_000_000, 450_000_000}[rng.IntN(4)], []int64{1000, 2000, 9000}[rng.IntN(3)])
		})
		set := nvtopo.Mask(rng.Uint64()) & nvtopo.FullMask(n)
		want := limit{}
		members := set.Positions()
		if len(members) > 1 {
			permute(members, 1, func(ring []int) {
				l := limit{bandwidth: math.MaxInt64}
				for i, a := range ring {
					link := g.Link(a, ring[(i+1)%len(ring)])
					l = limit{min(l.bandwidth, link.Bandwidth), max(l.latency, link.Latency)}
				}
				if l.bandwidth > want.bandwidth || l.bandwidth == want.bandwidth && l.latency < want.latency {
					want = l
				}
			})
		}
		if want.bandwidth == 0 {
			want = limit{}
		}
		if got, err := bottleneck(g, set); err != nil || got != want {
			t.Errorf("step %d, GPUs %v: %+v (%v), by brute force %+v", step, set.Positions(), got, err, want)
		}
	}
}

// TestGangAllReduce: a gang is as fast as the slowest of its nodes and hops.
func TestGangAllReduce(t *testing.T) {
	fast := machine(t, 8, "NVIDIA H200", func(int, int) nvtopo.Link { return wire(450_000_000, 2000) })
	slow := machine(t, 8, "NVIDIA L40S", func(int, int) nvtopo.Link { return wire(20_000_000, 9000) })
	network := Hop{Bandwidth: 50_000_000, Latency: 5000}
	tests := map[string]struct {
		parts []Part
		hops  []Hop
		want  float64 // seconds of 1 GB
	}{
		"on one node the ring decides": {[]Part{{fast, 0xff}}, nil, 14.0/8/450 + 14*2e-6},
		"between fast nodes the network": {
			[]Part{{fast, 0xff}, {fast, 0xff}}, []Hop{network, network}, 30.0/16/50 + 30*5e-6,
		},
		"a slow node holds up the rest": {
			[]Part{{fast, 0xff}, {slow, 0xf}}, []Hop{network, network}, 22.0/12/20 + 22*9e-6,
		},
		"a single GPU has no ring of its own": {
			[]Part{{slow, 1}, {slow, 2}}, []Hop{network, network}, 2.0/2/50 + 2*5e-6,
		},
		"a network that is not known holds up nobody": {
			[]Part{{fast, 0xff}, {fast, 0xff}}, []Hop{{}, {}}, 30.0/16/450 + 30*2e-6,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := New(1e9).GangAllReduce(tc.parts, tc.hops)
			if err != nil || math.Abs(got-tc.want) > 1e-12 {
				t.Errorf("%v s (%v), want %v", got, err, tc.want)
			}
		})
	}
}

// TestGangVerdict: the verdict of three gangs is that by hand.
func TestGangVerdict(t *testing.T) {
	of := func(model string) *nvtopo.Graph {
		return machine(t, 4, model, func(int, int) nvtopo.Link { return wire(100_000_000, 0) })
	}
	h200, l40s := of("NVIDIA H200"), of("NVIDIA L40S")
	hops := []Hop{{Bandwidth: 50_000_000}, {Bandwidth: 50_000_000}}
	j := New(1e9)
	for _, g := range []struct {
		parts []Part
		wait  float64
	}{
		{[]Part{{h200, 0xf}, {h200, 0xf}}, 1},
		{[]Part{{h200, 0xf}, {l40s, 0xf}}, 3},
		{[]Part{{l40s, 3}, {l40s, 3}}, 5},
	} {
		if err := j.AddGang(g.parts, hops, g.wait); err != nil {
			t.Fatal(err)
		}
	}
	// 14/8 GB over 50 GB/s, and 6/4.
	want := &GangVerdict{
		Gangs: 3, MixedModels: 1, AllReduceMS: (2*8*35 + 4*30) / 20.0,
		BySize: map[int]GangSizeVerdict{8: {Gangs: 2, AllReduceMS: 35, MeanWaitS: 2}, 4: {Gangs: 1, AllReduceMS: 30, MeanWaitS: 5}},
	}
	if diff := cmp.Diff(want, j.Verdict().Gangs, cmpopts.EquateApprox(1e-12, 0)); diff != "" {
		t.Errorf("verdict (-want,+got):\n%s", diff)
	}
}
