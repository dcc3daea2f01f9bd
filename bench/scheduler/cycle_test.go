// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	pprofile "github.com/google/pprof/profile"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/bench/internal/report"
	"github.com/nvtopo/nvtopo/pkg/apis/config"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

// TestShortCycles: a short run of the cycle alone measures every profile.
func TestShortCycles(t *testing.T) {
	out := t.TempDir()
	cpu := filepath.Join(out, "cpu.pprof")
	var text bytes.Buffer
	// That every pod got a node and no GPU went twice is checked by the run itself.
	if err := command(t.Context(), []string{cycleCommand, "-short", "-out", out, "-cpuprofile", cpu}, &text, io.Discard); err != nil {
		t.Fatal(err)
	}
	env, res := resultIn(t, filepath.Join(out, cycleFile))
	if want := len(cycleWorkloads) * len(cycleProfiles) * 2; len(res.Cells) != want || env.GoVersion == "" {
		t.Fatalf("%d cells, want %d; Go %q", len(res.Cells), want, env.GoVersion)
	}
	for i := range res.Cells {
		checkCycle(t, &res.Cells[i])
	}
	checkLatency(t, res)
	checkPlans(t, res)
	if want := 3*3 - 2; len(res.Waiting) != want {
		t.Errorf("%d cases of gangs that wait, want %d", len(res.Waiting), want)
	}
	for _, w := range res.Waiting {
		if w.Rate <= 0 || w.Ratio <= 0 || w.Took.P50 <= 0 || w.Took.P99 < w.Took.P50 || w.Took.Max < w.Took.P99 {
			t.Errorf("figures are missing: %+v", w)
		}
	}
	for _, row := range []string{"| 100, mix 1/2/4/8, default + ours ", "| dgx2, narrowed, any ", "| none; 80 gated pods ", "| 64 "} {
		if !strings.Contains(text.String(), row) {
			t.Errorf("no line %q in:\n%s", row, &text)
		}
	}
	f, err := os.Open(cpu)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := pprofile.Parse(f); err != nil {
		t.Errorf("the CPU profile that was kept: %v", err)
	}
}

// resultIn reads a file of results.
func resultIn(t *testing.T, path string) (report.Environment, *Result) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Environment report.Environment
		Result      Result
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	return file.Environment, &file.Result
}

func checkCycle(t *testing.T, c *Cell) {
	t.Helper()
	if c.Wall <= 0 || c.CPU <= 0 || c.P99 < c.P50 || c.Mallocs < 1 || c.KiB <= 0 || c.Pods != 50 || c.Feasible < 1 || c.Evaluated < c.Feasible {
		t.Errorf("figures are missing: %+v %+v", c, c.Cycle)
	}
	switch {
	case c.Profile == "default" && c.Ours != 0:
		t.Errorf("our share of the baseline is %v µs", c.Ours)
	case c.Profile == "default + ours" && c.Workload == "1 GPU" && c.Evaluated > 16:
		t.Errorf("%.1f nodes filtered per pod, want at most the 16 that PreFilter narrows to", c.Evaluated)
	case c.Profile == "default + ours without narrowing" && c.Workload == "1 GPU" && c.Evaluated < 90:
		t.Errorf("%.1f nodes filtered per pod without narrowing, want about all 100", c.Evaluated)
	}
}

func checkLatency(t *testing.T, res *Result) {
	t.Helper()
	seen := map[string]bool{}
	for _, l := range res.Latency {
		if l.GPUs == 0 {
			seen[l.Machine+", "+l.Mode] = true
			if l.Unplaced == l.Pods || l.Reserve.P99 <= 0 {
				t.Errorf("%s, %s: %d of %d pods were placed", l.Machine, l.Mode, l.Pods-l.Unplaced, l.Pods)
			}
		}
		if l.Took.P50 <= 0 || l.Took.P99 < l.Took.P50 || l.Took.Max < l.Took.P99 {
			t.Errorf("%s, %s, %d GPUs: p50 %v, p99 %v, max %v", l.Machine, l.Mode, l.GPUs, l.Took.P50, l.Took.P99, l.Took.Max)
		}
	}
	for _, want := range []string{"dgx2, narrowed", "dgx2, all nodes", "switched-20, narrowed", "switched-20, all nodes"} {
		if !seen[want] {
			t.Errorf("no latency of %s", want)
		}
	}
}

// checkPlans checks plans on 200 nodes, which have no room for gangs of a thousand.
func checkPlans(t *testing.T, res *Result) {
	t.Helper()
	got := map[int]int{}
	for _, p := range res.Plans {
		got[p.Members] = p.Plans
		if p.First <= 0 || p.Thread.P50 <= 0 || p.Clock.Max < p.Clock.P50 || p.Clock.P50 <= 0 {
			t.Errorf("plans of %d members: figures are missing: %+v", p.Members, p)
		}
	}
	if diff := cmp.Diff(map[int]int{4: 89, 64: 4}, got); diff != "" {
		t.Errorf("plans by members (-want,+got):\n%s", diff)
	}
}

// TestCycleProfiles: the profiles of the cycle differ according to their names.
func TestCycleProfiles(t *testing.T) {
	got := map[string]any{}
	for i := range cycleProfiles {
		p := &cycleProfiles[i]
		c, err := p.decoded()
		if err != nil {
			t.Fatal(err)
		}
		got[p.name] = "none of ours"
		for _, c := range c.Profiles[0].PluginConfig {
			if args, ok := c.Args.(*config.TopologyAwareArgs); ok {
				got[p.name] = int(*args.NarrowTo)
			}
		}
	}
	want := map[string]any{"default": "none of ours", "default + ours without narrowing": 0, "default + ours": 16}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("narrowTo by profile (-want,+got):\n%s", diff)
	}
}

// TestVerifyBadOutcomes: Verify refuses bad outcomes.
func TestVerifyBadOutcomes(t *testing.T) {
	m, err := machine.Lookup("dgx1-v100")
	if err != nil {
		t.Fatal(err)
	}
	c, err := simulate(1, nil, m)
	if err != nil {
		t.Fatal(err)
	}
	on := func(name string, gpus int, ids ...string) placement {
		pod := newPod(name, gpus, "s")
		pod.Spec.NodeName = c.nodes[0].Name
		return placement{pod, &allocation.Allocation{Containers: []allocation.Container{{Resource: gpuResource, GPUs: ids}}}}
	}
	nowhere := placement{pod: newPod("a", 1, "s")}
	tests := map[string]struct {
		placed  []placement
		pods    int
		wantErr string
	}{
		"two pods with GPUs of their own": {placed: []placement{on("a", 1, "x"), on("b", 2, "y", "z")}, pods: 2},
		"a pod is missing":                {placed: []placement{on("a", 1, "x")}, pods: 2, wantErr: "1 of 2 pods"},
		"a pod has no node":               {placed: []placement{nowhere}, pods: 1, wantErr: `node ""`},
		"one GPU for two pods":            {placed: []placement{on("a", 1, "x"), on("b", 1, "x")}, pods: 2, wantErr: "pods a and b"},
		"fewer GPUs than asked for":       {placed: []placement{on("a", 2, "x")}, pods: 1, wantErr: "asked for 2"},
		"more GPUs asked for than there are": {
			placed: []placement{on("a", 8, "1", "2", "3", "4", "5", "6", "7", "8"), on("b", 1, "9")}, pods: 2, wantErr: "more pods than it has GPUs",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			err := verify(c, make([]*v1.Pod, tc.pods), tc.placed, true)
			if tc.wantErr == "" && err != nil || tc.wantErr != "" && (err == nil || !strings.Contains(err.Error(), tc.wantErr)) {
				t.Errorf("got %v, want %q", err, tc.wantErr)
			}
		})
	}
}

// TestTwentyGPUSwitches: a machine of twenty GPUs has five switches.
func TestTwentyGPUSwitches(t *testing.T) {
	g, err := switched20().GraphFor("n")
	if err != nil {
		t.Fatal(err)
	}
	pairs := map[string]int{}
	for i := range g.Len() {
		for j := range i {
			pairs[g.Link(i, j).Class.String()]++
		}
	}
	want := map[string]int{"PIX": 5 * 6, "NODE": 66 + 28 - 30, "SYS": 12 * 8}
	if diff := cmp.Diff(want, pairs); diff != "" {
		t.Errorf("pairs by class (-want,+got):\n%s", diff)
	}
}

// cpuProfile encodes samples of 1 ms; a stack is given innermost first, functions
// in one string are inlined into each other.
func cpuProfile(samples []stackSample) *pprofile.Profile {
	p := &pprofile.Profile{
		SampleType: []*pprofile.ValueType{{Type: "samples", Unit: "count"}, {Type: "cpu", Unit: "nanoseconds"}},
		PeriodType: &pprofile.ValueType{Type: "cpu", Unit: "nanoseconds"}, Period: 1e6,
	}
	functions := map[string]*pprofile.Function{}
	for _, s := range samples {
		out := &pprofile.Sample{Value: []int64{1, 1e6}}
		if s.cycle {
			out.Label = map[string][]string{cycleLabel: {"yes"}}
		}
		for _, inlined := range s.stack {
			l := &pprofile.Location{ID: uint64(len(p.Location) + 1)}
			for _, name := range inlined {
				f, ok := functions[name]
				if !ok {
					f = &pprofile.Function{ID: uint64(len(functions) + 1), Name: name}
					functions[name], p.Function = f, append(p.Function, f)
				}
				l.Line = append(l.Line, pprofile.Line{Function: f})
			}
			p.Location = append(p.Location, l)
			out.Location = append(out.Location, l)
		}
		p.Sample = append(p.Sample, out)
	}
	return p
}

type stackSample struct {
	cycle bool
	stack [][]string
}

// TestCPUShares: our share of a CPU profile is found.
func TestCPUShares(t *testing.T) {
	const (
		filter  = ours + "plugins/lifecycle.(*Plugin).Filter"
		judge   = ours + "nodestate.(*NodeCache).Judge"
		reserve = ours + "plugins/lifecycle.(*Plugin).Reserve"
		handler = ours + "nodestate.(*AllocationTable).podBound"
		sched   = "k8s.io/kubernetes/pkg/scheduler.(*Scheduler).schedulePod"
		malloc  = "runtime.mallocgc"
	)
	samples := []stackSample{
		{true, [][]string{{malloc}, {judge, filter}, {sched}}},                                               // ours, in Filter, by an inlined call
		{true, [][]string{{judge}, {judge}, {filter}, {sched}}},                                              // recursion counts once
		{true, [][]string{{malloc}, {sched}}},                                                                // the scheduler's own
		{true, [][]string{{ours + "nodestate.(*AllocationTable).Assume"}, {reserve}, {"main.(*rig).cycle"}}}, // by its outermost
		{true, [][]string{{handler}, {"main.x"}}},                                                            // at no extension point
		{false, [][]string{{handler}, {"runtime.goexit"}}},                                                   // ours, but not in a cycle
		{false, [][]string{{"runtime.gcBgMarkWorker"}}},
	}
	got := &Cell{Pods: 2, Cycle: &Cycle{}}
	got.readShares(cpuProfile(samples))
	want := &Cycle{Samples: 5, InCycle: 2500, Ours: 2000} // µs a pod
	if diff := cmp.Diff(want, got.Cycle); diff != "" {
		t.Errorf("shares (-want,+got):\n%s", diff)
	}
}
