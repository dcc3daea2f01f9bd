// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
)

// clusterOf returns nodes of machines of the catalogue, in order.
func clusterOf(tb testing.TB, machines ...string) []Node {
	tb.Helper()
	var out []Node
	for i, name := range machines {
		m, err := machine.Lookup(name)
		if err != nil {
			tb.Fatal(err)
		}
		g, err := m.Graph()
		if err != nil {
			tb.Fatal(err)
		}
		out = append(out, Node{Name: fmt.Sprint("node-", i), Graph: g})
	}
	return out
}

func mustRun(tb testing.TB, c Config) *Result {
	tb.Helper()
	r, err := Run(tb.Context(), c)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// watched replays and returns the placements too.
func watched(tb testing.TB, c Config) (*Result, []Placement) {
	tb.Helper()
	var seen []Placement
	c.Observe = func(p Placement) { seen = append(seen, p) }
	return mustRun(tb, c), seen
}

func jobs(rows ...[4]float64) []Job {
	var out []Job
	for _, r := range rows {
		out = append(out, Job{ArrivalS: r[0], DurationS: r[1], GPUs: int(r[2]), Pods: int(r[3])})
	}
	return out
}

// The machine of these traces has four GPUs in two bridged pairs, 0-1 and 2-3, and
// each GPU on a NUMA node of its own.
const bridged = "a100-pcie-4-bridged"

// TestReplayByHand: small traces are replayed as by hand.
func TestReplayByHand(t *testing.T) {
	cases := map[string]struct {
		nodes  []string
		policy string
		load   float64
		jobs   []Job // arrival, duration, GPUs, pods
		want   []Placement
	}{
		"a pod waits for the first that ends": {
			nodes: []string{bridged, bridged}, policy: "binpack+lowest",
			jobs: jobs([4]float64{0, 10, 4, 1}, [4]float64{1, 10, 4, 1}, [4]float64{2, 5, 2, 1}),
			want: []Placement{
				{Job: 0, Node: 0, Set: 0b1111, StartS: 0, EndS: 10},
				{Job: 1, Node: 1, Set: 0b1111, StartS: 1, EndS: 11},
				{Job: 2, Node: 0, Set: 0b0011, StartS: 10, EndS: 15},
			},
		},
		"a later pod passes one that does not fit": {
			nodes: []string{bridged}, policy: "binpack+lowest",
			jobs: jobs([4]float64{0, 10, 2, 1}, [4]float64{1, 10, 4, 1}, [4]float64{2, 3, 2, 1}),
			want: []Placement{
				{Job: 0, Set: 0b0011, StartS: 0, EndS: 10},
				{Job: 2, Set: 0b1100, StartS: 2, EndS: 5},
				{Job: 1, Set: 0b1111, StartS: 10, EndS: 20},
			},
		},
		"waiting pods start in order of arrival": {
			nodes: []string{bridged}, policy: "binpack+lowest",
			jobs: jobs([4]float64{0, 10, 4, 1}, [4]float64{1, 1, 1, 1}, [4]float64{2, 1, 2, 1}, [4]float64{3, 1, 1, 1}),
			want: []Placement{
				{Job: 0, Set: 0b1111, StartS: 0, EndS: 10},
				{Job: 1, Set: 0b0001, StartS: 10, EndS: 11},
				{Job: 2, Set: 0b0110, StartS: 10, EndS: 11},
				{Job: 3, Set: 0b1000, StartS: 10, EndS: 11},
			},
		},
		"what ends makes room for what arrives at that moment": {
			nodes: []string{bridged}, policy: "spread+lowest",
			jobs: jobs([4]float64{0, 10, 4, 1}, [4]float64{10, 1, 4, 1}),
			want: []Placement{
				{Job: 0, Set: 0b1111, StartS: 0, EndS: 10},
				{Job: 1, Set: 0b1111, StartS: 10, EndS: 11},
			},
		},
		"a gang starts together or not at all": {
			nodes: []string{bridged, bridged}, policy: "binpack+lowest",
			jobs: jobs([4]float64{0, 10, 1, 1}, [4]float64{1, 5, 4, 2}, [4]float64{2, 5, 4, 1}),
			want: []Placement{
				{Job: 0, Node: 0, Set: 0b0001, StartS: 0, EndS: 10},
				{Job: 2, Node: 1, Set: 0b1111, StartS: 2, EndS: 7},
				{Job: 1, Pod: 0, Node: 0, Set: 0b1111, StartS: 10, EndS: 15},
				{Job: 1, Pod: 1, Node: 1, Set: 0b1111, StartS: 10, EndS: 15},
			},
		},
		"spread takes the emptiest node and binpack the fullest": {
			nodes: []string{bridged, bridged}, policy: "spread+lowest",
			jobs: jobs([4]float64{0, 10, 1, 1}, [4]float64{1, 10, 1, 1}, [4]float64{2, 10, 1, 1}),
			want: []Placement{
				{Job: 0, Node: 0, Set: 0b0001, StartS: 0, EndS: 10},
				{Job: 1, Node: 1, Set: 0b0001, StartS: 1, EndS: 11},
				{Job: 2, Node: 0, Set: 0b0010, StartS: 2, EndS: 12},
			},
		},
		"fgd keeps the node whole that the mix of pods can use whole": {
			nodes: []string{bridged, bridged}, policy: "fgd+lowest",
			jobs: jobs([4]float64{0, 10, 1, 1}, [4]float64{1, 10, 1, 1}, [4]float64{2, 10, 4, 1}),
			want: []Placement{
				{Job: 0, Node: 0, Set: 0b0001, StartS: 0, EndS: 10},
				{Job: 1, Node: 0, Set: 0b0010, StartS: 1, EndS: 11},
				{Job: 2, Node: 1, Set: 0b1111, StartS: 2, EndS: 12},
			},
		},
		"ours takes the pair that is bridged and leaves the other": {
			nodes: []string{bridged, bridged}, policy: Ours,
			jobs: jobs([4]float64{0, 10, 1, 1}, [4]float64{1, 10, 2, 1}, [4]float64{2, 10, 1, 1}),
			want: []Placement{
				{Job: 0, Node: 0, Set: 0b0001, StartS: 0, EndS: 10},
				{Job: 1, Node: 0, Set: 0b1100, StartS: 1, EndS: 11},
				{Job: 2, Node: 0, Set: 0b0010, StartS: 2, EndS: 12},
			},
		},
		// 4 + 4 + 8 = 16 GPU seconds on 4 GPUs are 4 s at load 1, 8 s at half of it.
		"the load stretches the arrivals": {
			nodes: []string{bridged}, policy: "binpack+lowest", load: 0.5,
			jobs: jobs([4]float64{100, 1, 4, 1}, [4]float64{101, 1, 4, 1}, [4]float64{102, 2, 4, 1}),
			want: []Placement{
				{Job: 0, Set: 0b1111, StartS: 0, EndS: 1},
				{Job: 1, Set: 0b1111, StartS: 4, EndS: 5},
				{Job: 2, Set: 0b1111, StartS: 8, EndS: 10},
			},
		},
		"jobs come in any order and those that never fit are left out": {
			nodes: []string{bridged}, policy: "binpack+lowest",
			jobs: jobs([4]float64{9, 1, 2, 1}, [4]float64{5, 9, 8, 1}, [4]float64{7, 1, 1, 1}, [4]float64{6, 9, 4, 2}),
			want: []Placement{
				{Job: 2, Set: 0b0001, StartS: 0, EndS: 1},
				{Job: 0, Set: 0b0011, StartS: 2, EndS: 3},
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, got := watched(t, Config{Nodes: clusterOf(t, tc.nodes...), Jobs: tc.jobs, Policy: tc.policy, Load: tc.load})
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("placements (-want,+got):\n%s", diff)
			}
		})
	}
}

// TestMeasuresByHand: measures are those computed by hand.
func TestMeasuresByHand(t *testing.T) {
	pcie := 12.0 // GB/s of SYS at PCIe 4; the bridge has 300
	cases := map[string]struct {
		config Config
		nodes  []string
		want   Result
	}{
		// Until the last arrival at 4 s: 4 GPUs from 0 s, 8 from 2 s; the third pod waits 6 s.
		"waits and allocation": {
			nodes: []string{bridged, bridged},
			config: Config{
				Policy: "binpack+lowest",
				Jobs:   jobs([4]float64{0, 10, 4, 1}, [4]float64{2, 10, 4, 1}, [4]float64{4, 5, 2, 1}),
			},
			want: Result{
				Policy: "binpack+lowest", Nodes: 2, GPUs: 8, Pods: 3, MultiGPUPods: 3,
				BestClassShare: 1, BestClassShareBySize: map[int]float64{2: 1, 4: 1}, MeanRingRatio: 1,
				AllocationRatio: 24.0 / 32, // of the free, nothing is unusable: whole nodes only
				MeanWaitS:       2, P99WaitS: 6, MeanWaitMultiS: 2, WindowS: 4,
			},
		},
		// A single GPU breaks the pair 0-1; then 1-2 is taken although 2-3 is bridged.
		"a pair across bridges": {
			nodes: []string{bridged},
			config: Config{
				Policy: "binpack+lowest",
				Jobs:   jobs([4]float64{0, 10, 1, 1}, [4]float64{1, 10, 2, 1}, [4]float64{3, 10, 4, 1}),
			},
			want: Result{
				Policy: "binpack+lowest", Nodes: 1, GPUs: 4, Pods: 3, MultiGPUPods: 2,
				// The pod of four waits for the end at 11 s and has its best ring then.
				BestClassShare: 0.5, BestClassShareBySize: map[int]float64{2: 0, 4: 1},
				MeanRingRatio: (pcie/300 + 1) / 2, MeanRegretGBps: (300 - pcie) / 2,
				AllocationRatio: 7.0 / 12, // 1 s with one GPU, 2 s with three
				// Free: 3 for 1 s, of which a third of the pods (those of four) can use
				// none; 1 for 2 s, of which two thirds can use none.
				FGDFragmentation: (3*1/3.0 + 1*2*2/3.0) / 5,
				StrandedForFour:  1,
				MeanWaitS:        8.0 / 3, P99WaitS: 8, MeanWaitMultiS: 4, WindowS: 3,
			},
		},
		"the warm-up is replayed and not measured": {
			nodes: []string{bridged},
			config: Config{
				Policy: "binpack+lowest", WarmUp: 0.5, Seed: 7,
				Jobs: jobs([4]float64{0, 10, 2, 1}, [4]float64{1, 10, 2, 1}, [4]float64{2, 1, 1, 1}, [4]float64{4, 1, 1, 1}),
			},
			want: Result{
				Policy: "binpack+lowest", Seed: 7, Nodes: 1, GPUs: 4, Pods: 2,
				BestClassShareBySize: map[int]float64{},
				AllocationRatio:      1, MeanWaitS: 7, P99WaitS: 8, WindowS: 2,
			},
		},
		"what fits nowhere counts nowhere but as such": {
			nodes: []string{bridged, bridged},
			config: Config{
				Policy: "spread+exact",
				Jobs:   jobs([4]float64{0, 2, 8, 1}, [4]float64{0, 2, 4, 3}, [4]float64{0, 4, 4, 2}, [4]float64{3, 4, 1, 1}),
			},
			want: Result{
				Policy: "spread+exact", Nodes: 2, GPUs: 8, Pods: 3, MultiGPUPods: 2, Unplaceable: 4,
				BestClassShare: 1, BestClassShareBySize: map[int]float64{4: 1}, MeanRingRatio: 1,
				AllocationRatio: 1, MeanWaitS: 1.0 / 3, P99WaitS: 1, WindowS: 3,
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.config.Nodes = clusterOf(t, tc.nodes...)
			got := mustRun(t, tc.config)
			if diff := cmp.Diff(&tc.want, got, approximately); diff != "" {
				t.Errorf("result (-want,+got):\n%s", diff)
			}
		})
	}
}

// approximately compares floats with room for their rounding.
var approximately = cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(1, math.Abs(a), math.Abs(b)) })

// TestKubeletRefusal: kubelet refuses what the node chosen by count cannot align.
func TestKubeletRefusal(t *testing.T) {
	// Eight GPUs on two sockets. Three and three leave one GPU a socket: two are free
	// and a pod of two fits neither socket. The pod of eight fits no socket at all and
	// so has best-effort.
	trace := jobs([4]float64{0, 10, 3, 1}, [4]float64{1, 20, 3, 1}, [4]float64{2, 5, 2, 1}, [4]float64{3, 1, 8, 1})
	alignedSets := []Placement{
		{Job: 0, Set: 0b0000_0111, StartS: 0, EndS: 10},
		{Job: 1, Set: 0b0111_0000, StartS: 1, EndS: 21},
		{Job: 2, Set: 0b0000_0011, StartS: 10, EndS: 15},
		{Job: 3, Set: 0b1111_1111, StartS: 21, EndS: 22},
	}
	cases := map[string]struct {
		policy         string
		kubelets       nvtopo.Policy
		want           []Placement
		wantRejections int
	}{
		"single-numa-node refuses the pod of two": {
			policy: "binpack+lowest", kubelets: nvtopo.PolicySingleNUMANode, want: alignedSets, wantRejections: 1,
		},
		"best-effort refuses nothing": {
			policy: "binpack+lowest",
			want: []Placement{
				{Job: 0, Set: 0b0000_0111, StartS: 0, EndS: 10},
				{Job: 1, Set: 0b0011_1000, StartS: 1, EndS: 21},
				{Job: 2, Set: 0b1100_0000, StartS: 2, EndS: 7},
				{Job: 3, Set: 0b1111_1111, StartS: 21, EndS: 22},
			},
		},
		"ours does not try": {policy: Ours, kubelets: nvtopo.PolicySingleNUMANode, want: alignedSets},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r, got := watched(t, Config{
				Nodes: clusterOf(t, "v100-pcie-8"), Jobs: trace, Policy: tc.policy, PodPolicy: tc.kubelets,
			})
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("placements (-want,+got):\n%s", diff)
			}
			if r.KubeletRejections != tc.wantRejections {
				t.Errorf("rejections: %d, want %d", r.KubeletRejections, tc.wantRejections)
			}
		})
	}
}

// TestConfigErrors: bad configurations are refused.
func TestConfigErrors(t *testing.T) {
	good := func() Config {
		return Config{Nodes: clusterOf(t, bridged), Jobs: jobs([4]float64{0, 1, 1, 1}), Policy: Ours}
	}
	cases := map[string]struct {
		change func(*Config)
		want   string
	}{
		"no nodes":                 {func(c *Config) { c.Nodes = nil }, "no nodes"},
		"no jobs":                  {func(c *Config) { c.Jobs = nil }, "no jobs"},
		"an unknown policy":        {func(c *Config) { c.Policy = "best" }, `no policy "best"`},
		"half a policy":            {func(c *Config) { c.Policy = "spread" }, `no policy "spread"`},
		"a negative load":          {func(c *Config) { c.Load = -1 }, "load -1"},
		"a load that is none":      {func(c *Config) { c.Load = math.NaN() }, "load NaN"},
		"a warm-up of all":         {func(c *Config) { c.WarmUp = 1 }, "warm-up 1"},
		"a job of no GPUs":         {func(c *Config) { c.Jobs[0].GPUs = 0 }, "job 0: 0 GPUs"},
		"a job of no pods":         {func(c *Config) { c.Jobs[0].Pods = 0 }, "job 0: 0 pods"},
		"a job of no time":         {func(c *Config) { c.Jobs[0].DurationS = 0 }, "job 0: duration 0 s"},
		"a job before the trace":   {func(c *Config) { c.Jobs[0].ArrivalS = -1 }, "job 0: arrival -1 s"},
		"partitions of 16 GPUs":    {func(c *Config) { c.Nodes, c.Policy = clusterOf(t, "dgx2"), "spread+best-effort" }, "at most 10 GPUs"},
		"a job that arrives never": {func(c *Config) { c.Jobs[0].ArrivalS = math.NaN() }, "job 0: arrival NaN s"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := good()
			tc.change(&c)
			_, err := Run(t.Context(), c)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one with %q", err, tc.want)
			}
		})
	}
}

// TestReplayContext: Replay ends with its context.
func TestReplayContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	trace, err := Synthetic("multigpu50", 5000, 1)
	if err != nil {
		t.Fatal(err)
	}
	started := 0
	_, err = Run(ctx, Config{
		Nodes: clusterOf(t, "dgx1-v100"), Jobs: trace, Policy: Ours, Load: 0.5,
		Observe: func(Placement) {
			if started++; started == 100 {
				cancel()
			}
		},
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want the context's", err)
	}
	if started > 1000 {
		t.Errorf("%d of 5000 pods started, want the replay to end soon after the 100th", started)
	}
}
