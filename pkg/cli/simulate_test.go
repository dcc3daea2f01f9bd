// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/internal/lab/sim"
)

const (
	simulateNodes = "testdata/nodes.txt"
	simulateTrace = "testdata/trace.csv"
)

func TestSimulateGoldenOutputs(t *testing.T) {
	cases := map[string]string{
		"simulate":      "simulate --nodes testdata/nodes.txt --trace testdata/trace.csv --policy binpack+lowest --policy spread+hami --load 0 --warm-up 0",
		"help-simulate": "simulate --help",
	}
	checkGolden(t, cases)
}

// TestSimulateJSON compares the JSON with the library's result for the same files and flags.
func TestSimulateJSON(t *testing.T) {
	text, err := os.ReadFile(simulateNodes)
	if err != nil {
		t.Fatal(err)
	}
	nodes, err := sim.ReadNodes(text)
	if err != nil {
		t.Fatal(err)
	}
	trace, err := sim.Synthetic("philly", 300, 5)
	if err != nil {
		t.Fatal(err)
	}
	var want []*sim.Result
	for _, p := range []string{"spread+random", "fgd+hami"} {
		r, err := sim.Run(t.Context(), sim.Config{Nodes: nodes, Jobs: trace, Policy: p, Load: 0.7, Seed: 5, WarmUp: 0.1})
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, r)
	}
	line := "simulate --nodes - --trace synthetic:philly --pods 300 --load 0.7 --seed 5 --warm-up 0.1 -o json --policy spread+random"
	var one sim.Result
	decode(t, mustRun(t, string(text), strings.Fields(line)...), &one)
	if diff := cmp.Diff(want[0], &one); diff != "" {
		t.Errorf("one policy (-want,+got):\n%s", diff)
	}
	var both []*sim.Result
	decode(t, mustRun(t, string(text), strings.Fields(line+" --policy fgd+hami")...), &both)
	if diff := cmp.Diff(want, both); diff != "" {
		t.Errorf("two policies (-want,+got):\n%s", diff)
	}
}

// TestSimulateWeights: simulate applies the weights. Weights are those of the library's policy
// ours, and each has its own line.
func TestSimulateWeights(t *testing.T) {
	const nodes = "dgx1-v100 4\nhgx-h200 4\n"
	line := "simulate --nodes - --trace synthetic:multigpu50 --pods 1000 -o json --policy ours --policy spread+hami"
	var got, plain []*sim.Result
	decode(t, mustRun(t, nodes, strings.Fields(line+" --weights 0.4,0.3,0.3 --weights 1,0,0")...), &got)
	decode(t, mustRun(t, nodes, strings.Fields(line)...), &plain)
	var names []string
	for _, r := range got {
		names = append(names, r.Policy)
	}
	if diff := cmp.Diff([]string{"ours 0.4,0.3,0.3", "ours 1,0,0", "spread+hami"}, names); diff != "" {
		t.Fatalf("(-want,+got)\n%s", diff)
	}
	got[0].Policy = plain[0].Policy
	for i, same := range map[int]int{0: 0, 2: 1} {
		if diff := cmp.Diff(plain[same], got[i]); diff != "" {
			t.Errorf("%s (-without weights,+with)\n%s", plain[same].Policy, diff)
		}
	}
	if got[1].FGDFragmentation <= got[0].FGDFragmentation {
		t.Errorf("bandwidth alone leaves %v of the free GPUs unusable, all three %v: want more", got[1].FGDFragmentation, got[0].FGDFragmentation)
	}
}

func decode(t *testing.T, text string, into any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
}

// TestSimulateJSONFields: the JSON of simulate has the published fields.
func TestSimulateJSONFields(t *testing.T) {
	out := mustRun(t, "", "simulate", "--nodes", simulateNodes, "--trace", simulateTrace, "-o", "json")
	var got map[string]any
	decode(t, out, &got)
	for _, field := range []string{
		"policy", "seed", "load", "multiGPUPods", "bestClassShare", "meanRingRatio", "meanRegretGBps", "singleNUMAShare", "kubeletRejections",
		"allocationRatio", "fgdFragmentation", "strandedForFour", "meanWaitS", "p99WaitS", "meanWaitMultiS",
	} {
		if _, ok := got[field]; !ok {
			t.Errorf("no field %s in %s", field, out)
		}
	}
}

// TestSimulateFabric places three gangs on the requirement's racks of four nodes, in the
// order of the nodes' file.
func TestSimulateFabric(t *testing.T) {
	const trace = "arrival_s,duration_s,gpus,pods\n0,60,8,3\n0,900,8,3\n1,9,8,2\n"
	args := fabricFiles(t, sampleFabric, "")[2:]
	// A node without a machine is no part of the cluster.
	if err := os.WriteFile(args[slices.Index(args, "--fabric")+1], []byte(sampleFabric+"spare,rack-0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	args = append([]string{"simulate", "--trace", "-", "--load", "0", "--warm-up", "0"}, without(args, "--free")...)
	type gangs map[string]any
	rack := func(v float64) map[string]any { return map[string]any{"rack": v} }
	cases := map[string]struct {
		flags string
		want  gangs
	}{
		"ours": {"", gangs{
			"count": 3.0, "oneDomainShare": rack(2. / 3), "domainsOverFewest": rack(1), "meanWaitSeconds": 0.0, "levelRegret": 0.0, "notCarriedOut": 0.0,
		}},
		"ours, patiently": {"--placement-patience 300s", gangs{
			"count": 3.0, "oneDomainShare": rack(1), "domainsOverFewest": rack(1), "meanWaitSeconds": 59. / 3, "levelRegret": 0.0, "notCarriedOut": 0.0,
		}},
		"ours, draining": {"--drain-after 1s", gangs{
			"count": 3.0, "oneDomainShare": rack(2. / 3), "domainsOverFewest": rack(1), "meanWaitSeconds": 0.0, "levelRegret": 0.0, "notCarriedOut": 0.0,
		}},
		"first fit": {"--gang-policy first-fit", gangs{
			"count": 3.0, "oneDomainShare": rack(2. / 3), "domainsOverFewest": rack(4. / 3), "meanWaitSeconds": 0.0, "levelRegret": 1. / 3, "notCarriedOut": 0.0,
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got struct {
				Policy string
				Gangs  gangs
			}
			out := mustRun(t, trace, append(append(args, "-o", "json"), strings.Fields(tc.flags)...)...)
			if err := json.Unmarshal([]byte(out), &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got.Gangs); diff != "" {
				t.Errorf("%s (-want,+got):\n%s", got.Policy, diff)
			}
		})
	}
	text := mustRun(t, trace, append(args, "--gang-policy", sim.Ours, "--gang-policy", "volcano")...)
	for _, want := range []string{"ONE RACK %", "NOT CARRIED OUT", "volcano      3"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	text = mustRun(t, trace, append(args, "--message-size", "1GB")...)
	for _, want := range []string{"ALL-REDUCE MS  SEVERAL MODELS", "MS OF 8"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// without leaves out a flag and its value.
func without(args []string, flag string) (out []string) {
	for i := 0; i < len(args); i += 2 {
		if args[i] != flag {
			out = append(out, args[i], args[i+1])
		}
	}
	return out
}

// TestSimulateErrors: errors of bad simulations report the fault.
func TestSimulateErrors(t *testing.T) {
	const files = " --nodes testdata/nodes.txt --trace testdata/trace.csv"
	cases := map[string]struct {
		line, input string
		code        int
		want        []string
	}{
		"no nodes":                     {"--trace x", "", ExitUsage, []string{"--nodes is needed"}},
		"no trace":                     {"--nodes x", "", ExitUsage, []string{"--trace is needed"}},
		"both on standard input":       {"--nodes - --trace -", "", ExitUsage, []string{"cannot both"}},
		"an unknown policy":            {files + " --policy best", "", ExitUsage, []string{`--policy "best"`, "binpack+exact"}},
		"a negative load":              {files + " --load -1", "", ExitUsage, []string{"--load -1"}},
		"a warm-up of all":             {files + " --warm-up 1", "", ExitUsage, []string{"--warm-up 1"}},
		"pods with a file":             {files + " --pods 5", "", ExitUsage, []string{"--pods", "synthetic:NAME"}},
		"no pods to draw":              {"--nodes testdata/nodes.txt --trace synthetic:philly --pods 0", "", ExitUsage, []string{"0 pods"}},
		"an unknown synthetic trace":   {"--nodes testdata/nodes.txt --trace synthetic:x", "", ExitUsage, []string{`"x"`, "multigpu50, philly"}},
		"a pod policy nobody has":      {files + " --pod-policy tight", "", ExitUsage, []string{"--pod-policy", `"tight"`}},
		"a pod policy not simulated":   {files + " --pod-policy restricted", "", ExitUsage, []string{"--pod-policy restricted"}},
		"a form nobody has":            {files + " -o xml", "", ExitUsage, []string{`--output "xml"`}},
		"a positional argument":        {files + " x", "", ExitUsage, []string{"flags only"}},
		"a nodes file that is missing": {"--nodes testdata/none --trace -", "", ExitInput, []string{"testdata/none"}},
		"a nodes file that is wrong":   {"--nodes - --trace " + simulateTrace, "\nabacus 3\n", ExitInput, []string{"standard input: line 2", `"abacus"`}},
		"a trace that is wrong":        {"--nodes testdata/nodes.txt --trace -", "arrival_s,duration_s,gpus\n0,1,many\n", ExitInput, []string{"standard input: line 2, column 5", `"many"`}},
		"two weights":                  {files + " --weights 1,0", "", ExitUsage, []string{`--weights "1,0"`, "three numbers"}},
		"a weight above 1":             {files + " --weights 1,2,0", "", ExitUsage, []string{`"2"`, "from 0 to 1"}},
		"a weight that is no number":   {files + " --weights NaN,1,0", "", ExitUsage, []string{`"NaN"`}},
		"weights that are all 0":       {files + " --weights 0,0,0", "", ExitUsage, []string{"above 0"}},
		"weights of other policies":    {files + " --weights 1,0,0 --policy spread+exact", "", ExitUsage, []string{"--policy ours"}},
		"weights on a fabric":          {files + " --weights 1,0,0 --fabric x", "", ExitUsage, []string{"without --fabric"}},
		"gangs without a fabric":       {files + " --gang-policy kueue", "", ExitUsage, []string{"--gang-policy", "--fabric"}},
		"patience without a fabric":    {files + " --placement-patience 1s", "", ExitUsage, []string{"--placement-patience", "--fabric"}},
		"draining without a fabric":    {files + " --drain-after 1s", "", ExitUsage, []string{"--drain-after", "--fabric"}},
		"draining for others":          {files + " --fabric x --gang-policy kueue --drain-after 1s", "", ExitUsage, []string{"--gang-policy ours"}},
		"draining before now":          {files + " --fabric x --drain-after -1s", "", ExitUsage, []string{"-1s"}},
		"pods' policies on a fabric":   {files + " --fabric x --policy spread+exact", "", ExitUsage, []string{"--policy", "--gang-policy"}},
		"a gang policy nobody has":     {files + " --fabric x --gang-policy slurm", "", ExitUsage, []string{`"slurm"`, "koordinator"}},
		"patience of others":           {files + " --fabric x --gang-policy kueue --placement-patience 1s", "", ExitUsage, []string{"--gang-policy ours"}},
		"patience below 0":             {files + " --fabric x --placement-patience -1s", "", ExitUsage, []string{"-1s"}},
		"two files on standard input":  {"--nodes - --fabric - --trace x", "", ExitUsage, []string{"only one of --fabric"}},
		"a fabric that is no table":    {"--nodes testdata/nodes.txt --trace x --fabric -", "name,rack\n", ExitInput, []string{"standard input: line 1", `"name"`}},
		"a picker too slow for that":   {"--nodes - --trace testdata/trace.csv --policy spread+best-effort", "dgx2 1", ExitInput, []string{"at most 10 GPUs", "dgx2-0"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := run(t, tc.input, append([]string{"simulate"}, strings.Fields(tc.line)...)...)
			if got := ExitCode(err); err == nil || got != tc.code {
				t.Fatalf("exit code %d (%v), want %d", got, err, tc.code)
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q lacks %q", err, want)
				}
			}
		})
	}
}

// TestSimulateContext: the simulation ends with its context.
func TestSimulateContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	cmd := New(programName)
	cmd.SetOut(&strings.Builder{})
	cmd.SetArgs([]string{"simulate", "--nodes", simulateNodes, "--trace", "synthetic:multigpu50"})
	if err := cmd.ExecuteContext(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want the context's", err)
	}
}
