// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"math"
	"testing"

	"github.com/nvtopo/nvtopo/internal/lab/sim/judge"
)

// TestJudged: a replay is judged by what its pods got, and runs depend on it where that is asked for.
func TestJudged(t *testing.T) {
	// One pod of eight after the other, each machine taken once; the A100 first, since its ring is
	// slower than that of the other and "reserve" takes the fast one.
	c := Config{
		Nodes: clusterOf(t, "dgx-a100", "hgx-h200"), Policy: "reserve+exact", MessageBytes: judge.DefaultBytes,
		Jobs: jobs([4]float64{0, 100, 8, 1}, [4]float64{1, 100, 8, 1}, [4]float64{2, 100, 1, 1}),
	}
	const fast, slow = 2 * 7.0 / 8 / 450, 2 * 7.0 / 8 / 300 // seconds but for latency
	near := func(what string, got, want float64) {
		t.Helper()
		if !(math.Abs(got-want) <= 0.02*want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	r, seen := watched(t, c)
	near("all-reduce", r.Judged.AllReduceMS, 1e3*(fast+slow)/2)
	near("wait of one", r.Judged.BySize[1].MeanWaitS, 98)
	near("end of the first", seen[0].EndS, 100)

	c.RunsByPlacement = true
	r, seen = watched(t, c)
	near("end on H200", seen[0].EndS, 100)
	near("run on A100", seen[1].EndS-seen[1].StartS, 100*(0.9*989/312+0.1*1.5))
	if r.Judged.BySize[8].Pods != 2 || seen[0].Node != 1 {
		t.Errorf("%d pods of eight, the first on node %d; want 2, the first on the H200", r.Judged.BySize[8].Pods, seen[0].Node)
	}

	c.MessageBytes = 0
	if _, err := Run(t.Context(), c); err == nil {
		t.Error("runs depend on placements that nobody judges")
	}
}

// TestReserve: pods of several GPUs take fast machines, single ones slow machines.
func TestReserve(t *testing.T) {
	c := Config{
		Nodes: clusterOf(t, "hgx-h200", "l40s-8", "l40s-8"), Policy: "reserve+lowest",
		Jobs: jobs([4]float64{0, 100, 1, 1}, [4]float64{1, 100, 2, 1}, [4]float64{2, 100, 8, 1}, [4]float64{3, 100, 1, 1}),
	}
	_, seen := watched(t, c)
	want := []int{1, 0, 2, 1}
	for i, p := range seen {
		if p.Node != want[i] {
			t.Errorf("job %d is on node %d, want %d", i, p.Node, want[i])
		}
	}
}

// TestJudgedGangs: gangs are judged over all their GPUs, and those on several models are counted.
func TestJudgedGangs(t *testing.T) {
	nodes := clusterOf(t, "hgx-h200", "l40s-8", "hgx-h200", "l40s-8")
	c := Config{
		Nodes: nodes, MessageBytes: judge.DefaultBytes, Fabric: racked(t, nodes, "s/a", "s/b", "s/a", "s/b"),
		Jobs: jobs([4]float64{0, 100, 8, 2}, [4]float64{1, 100, 8, 1}, [4]float64{2, 100, 4, 2}),
	}
	const fast, slow = 30.0 / 16 / 450, 30.0 / 16 / 12 // seconds of two whole nodes but for latency
	tests := map[string]struct {
		policy           string
		wantMS           float64 // of the gang of 16
		wantMixed, gangs int
	}{
		"ours takes the fast machines":     {policy: Ours, wantMS: 1e3 * fast, gangs: 2},
		"the first nodes have both models": {policy: "first-fit", wantMS: 1e3 * slow, wantMixed: 1, gangs: 2},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c.GangPolicy = tc.policy
			r, _ := watched(t, c)
			v := r.Judged.Gangs
			if v == nil || v.Gangs != tc.gangs || v.MixedModels != tc.wantMixed {
				t.Fatalf("%+v, want %d gangs, %d of several models", v, tc.gangs, tc.wantMixed)
			}
			if got := v.BySize[16].AllReduceMS; math.Abs(got-tc.wantMS) > 0.05*tc.wantMS {
				t.Errorf("all-reduce of 16 GPUs %v ms, want %v", got, tc.wantMS)
			}
		})
	}
}
