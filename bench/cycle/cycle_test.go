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

	"github.com/nvtopo/nvtopo/pkg/allocation"
	"github.com/nvtopo/nvtopo/pkg/apis/config"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
)

func TestMain(m *testing.M) {
	quiet()
	os.Exit(m.Run())
}

// TestShortRun: a short run measures every profile.
func TestShortRun(t *testing.T) {
	o, err := parse([]string{"-short", "-out", t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	o.cpuProfile, o.log = filepath.Join(o.out, "cpu.pprof"), io.Discard
	var text bytes.Buffer
	// That every pod got a node and no GPU went twice is checked by the run itself.
	res, err := run(t.Context(), o, &text)
	if err != nil {
		t.Fatal(err)
	}
	if want := len(workloads()) * 3; len(res.Cycles) != want {
		t.Fatalf("%d series, want %d", len(res.Cycles), want)
	}
	for _, s := range res.Cycles {
		t.Run(s.label(), func(t *testing.T) { checkSeries(t, o, s) })
	}
	checkLatency(t, res)
	checkPlans(t, res)
	checkWaiting(t, o, res)
	if !strings.Contains(text.String(), "| 100, mix 1/2/4/8, "+profileOurs) {
		t.Errorf("no line of the mix in:\n%s", &text)
	}
	checkFiles(t, o)
}

func checkSeries(t *testing.T, o *options, s *series) {
	t.Helper()
	if len(s.Wall) != o.repeats || len(s.Ratio) != o.repeats || s.Wall.Min() <= 0 || s.CPU.Mean() <= 0 || s.Mallocs.Min() < 1 || s.Bytes.Min() < 1 {
		t.Errorf("figures are missing: %+v", s)
	}
	if s.Pods < o.pods/2 || s.Feasible < 1 || s.Evaluated < s.Feasible {
		t.Errorf("%d pods, %.1f nodes filtered and %.1f feasible per pod", s.Pods, s.Evaluated, s.Feasible)
	}
	switch {
	case s.Profile == profileStock && (s.Ratio.Min() != 1 || s.Ratio.Max() != 1 || s.Usage.Ours != 0):
		t.Errorf("the baseline's ratio is %v and our share %d ns", s.Ratio, s.Usage.Ours)
	case s.Profile == profileOurs && s.Workload == "1 GPU" && s.Evaluated > 16:
		t.Errorf("%.1f nodes filtered per pod, want at most the 16 that PreFilter narrows to", s.Evaluated)
	case s.Profile == profileUnnarrowed && s.Workload == "1 GPU" && s.Evaluated < 90:
		t.Errorf("%.1f nodes filtered per pod without narrowing, want about all 100", s.Evaluated)
	}
}

func checkWaiting(t *testing.T, o *options, res *result) {
	t.Helper()
	if want := 3*len(o.waitingGangs) - 2; len(res.Waiting) != want {
		t.Errorf("%d cases of gangs that wait, want %d", len(res.Waiting), want)
	}
	for _, w := range res.Waiting {
		if w.Rate <= 0 || w.Ratio <= 0 || w.P50 <= 0 || w.P99 < w.P50 || w.Max < w.P99 {
			t.Errorf("figures are missing: %+v", w)
		}
	}
}

func checkLatency(t *testing.T, res *result) {
	t.Helper()
	seen := map[string]bool{}
	for _, l := range res.Latency {
		if l.GPUs == 0 {
			seen[l.Machine+", "+l.Mode] = true
			if l.Unplaced == l.Pods || l.ReserveP99 <= 0 {
				t.Errorf("%s, %s: %d of %d pods were placed", l.Machine, l.Mode, l.Pods-l.Unplaced, l.Pods)
			}
		}
		if l.P50 <= 0 || l.P99 < l.P50 || l.Max < l.P99 {
			t.Errorf("%s, %s, %d GPUs: p50 %v, p99 %v, max %v", l.Machine, l.Mode, l.GPUs, l.P50, l.P99, l.Max)
		}
	}
	for _, want := range []string{"dgx2, narrowed", "dgx2, all nodes", "switched-20, narrowed", "switched-20, all nodes"} {
		if !seen[want] {
			t.Errorf("no latency of %s", want)
		}
	}
}

// checkPlans is of 200 nodes, which have no room for gangs of a thousand.
func checkPlans(t *testing.T, res *result) {
	t.Helper()
	got := map[int]int{}
	for _, p := range res.Plans {
		got[p.Members] = len(p.Thread)
		if p.First <= 0 || p.Thread.Min() <= 0 || len(p.Clock) != len(p.Thread) {
			t.Errorf("plans of %d members: figures are missing: %+v", p.Members, p)
		}
	}
	if diff := cmp.Diff(map[int]int{4: 89, 64: 4}, got); diff != "" {
		t.Errorf("plans by members (-want,+got):\n%s", diff)
	}
}

func checkFiles(t *testing.T, o *options) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(o.out, "bench-cycle.json"))
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Environment struct{ GoVersion string }
		Result      result
	}
	if err := json.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	if doc.Environment.GoVersion == "" || len(doc.Result.Cycles) == 0 || len(doc.Result.Cycles[0].Wall) != o.repeats {
		t.Errorf("the JSON file lacks figures: %.300s", data)
	}
	f, err := os.Open(o.cpuProfile)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := pprofile.Parse(f); err != nil {
		t.Errorf("the CPU profile that was kept: %v", err)
	}
}

// TestProfileDifferences: the profiles differ in what their names say.
func TestProfileDifferences(t *testing.T) {
	all, err := profiles()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]any{}
	for _, p := range all {
		got[p.name] = "none of ours"
		for _, c := range p.config.Profiles[0].PluginConfig {
			if args, ok := c.Args.(*config.TopologyAwareArgs); ok {
				got[p.name] = int(*args.NarrowTo)
			}
		}
	}
	want := map[string]any{profileStock: "none of ours", profileUnnarrowed: 0, profileOurs: 16}
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
	c, err := newCluster(1, m)
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

// TestWorkloadReproducibility: workloads are reproducible.
func TestWorkloadReproducibility(t *testing.T) {
	mix := workloads()[1]
	a, b := mix.pods(500, 5000, "s", 7), mix.pods(500, 5000, "s", 7)
	if diff := cmp.Diff(a, b); diff != "" {
		t.Errorf("the same seed gives other pods:\n%s", diff)
	}
	counts := map[int]int{}
	for _, p := range a {
		counts[gpusOf(p)]++
	}
	for i, size := range mix.sizes {
		if got, want := counts[size]*100/len(a), mix.share[i]; got < want-6 || got > want+6 {
			t.Errorf("%d %% of the pods ask for %d GPUs, want about %d %%", got, size, want)
		}
	}
	if got := len(workloads()[3].pods(500, 800, "s", 7)); got != 90 {
		t.Errorf("%d pods of 8 GPUs for a cluster of 800, want 90", got)
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
