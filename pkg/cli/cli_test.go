// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files")

// run calls the command as a shell would and returns its output.
func run(t *testing.T, input string, args ...string) (string, error) {
	t.Helper()
	cmd := New(programName)
	var out, errOut bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&errOut)
	cmd.SetIn(strings.NewReader(input))
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	if errOut.Len() > 0 {
		t.Errorf("%v wrote to standard error: %s", args, errOut.String())
	}
	// "No" is a result of check and verify-node, and of fabric place in JSON.
	no := len(args) > 0 && slices.Contains([]string{"check", "verify-node", "fabric"}, args[0]) && ExitCode(err) == ExitNoAnswer
	if err != nil && out.Len() > 0 && !no {
		t.Errorf("%v failed and wrote an answer too: %s", args, out.String())
	}
	return out.String(), err
}

func mustRun(t *testing.T, input string, args ...string) string {
	t.Helper()
	out, err := run(t, input, args...)
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return out
}

func TestGoldenOutputs(t *testing.T) {
	cases := map[string]string{
		"matrix-text":            "matrix -f testdata/dgx1v.txt",
		"matrix-object":          "matrix -f testdata/object.yaml",
		"matrix-bandwidth":       "matrix -f testdata/dgx1v.txt --pcie-gen 3 --show bandwidth",
		"matrix-degraded":        "matrix -f testdata/degraded.yaml",
		"pick-1-degraded":        "pick -n 1 -f testdata/degraded.yaml",
		"matrix-latency":         "matrix -f testdata/object.yaml --show latency",
		"matrix-pcie":            "matrix -f testdata/object.yaml --show pcie",
		"pick-4":                 "pick -n 4 -f testdata/dgx1v.txt",
		"pick-4-partly-free":     "pick -n 4 -f testdata/dgx1v.txt --free 0,2,3,4,5,7",
		"pick-4-json":            "pick -n 4 -f testdata/dgx1v.txt --free 0,2,3,4,5,7 -o json",
		"pick-2":                 "pick -n 2 -f testdata/dgx1v.txt --policy single-numa --min-link NVLINK --min-bandwidth 50",
		"pick-1":                 "pick -n 1 -f testdata/object.yaml",
		"pick-4-yaml":            "pick -n 4 -f testdata/dgx1v.txt --free 0,2,3,4,5,7 -o yaml",
		"pick-1-json":            "pick -n 1 -f testdata/dgx1v.txt -o json",
		"pick-mixed-json":        "pick -n 2 -f testdata/object.yaml --allow-mixed-models -o json",
		"pick-npu-json":          "pick -n 1 -f testdata/object.yaml --resource example.com/npu -o json",
		"pick-numactl":           "pick -n 3 -f testdata/dgx1v.txt --numactl testdata/numactl.txt --gpu-model P100",
		"matrix-ascend":          "matrix -f testdata/ascend.txt",
		"pick-ascend":            "pick -n 4 -f testdata/ascend.txt --free 2,3,4,5,6,7 --gpu-model Ascend_910A --min-link HCCS",
		"export-ascend":          "export -f testdata/ascend.txt --name node-a",
		"matrix-amd":             "matrix -f testdata/amd.txt",
		"matrix-amd-bandwidth":   "matrix -f testdata/amd.txt --gpu-model MI250X --show bandwidth",
		"pick-amd":               "pick -n 4 -f testdata/amd.txt --free 0,1,3,4,5,7",
		"export-amd":             "export --machine mi250x-8 --name node-a",
		"groups":                 "groups -g 3 -f testdata/dgx1v.txt",
		"groups-1":               "groups -g 1 -f testdata/object.yaml",
		"groups-json":            "groups -g 2 -f testdata/dgx1v.txt --free 0-4 -o json",
		"estimate":               "estimate -f testdata/dgx1v.txt --gpus 0-3 --size 1GB",
		"estimate-binary":        "estimate -n 8 --bandwidth 600 --latency 0 --size 100MB --binary-units",
		"estimate-json":          "estimate -f testdata/object.yaml --gpus 1,2 --size 64MiB --algorithm ring --collective all-gather -o json",
		"affinity":               "affinity -f testdata/dgx1v.txt --gpus 4-7",
		"affinity-cpus":          "affinity -f testdata/object.yaml --gpus 1 --cpus 2",
		"affinity-two-nodes":     "affinity --machine dgx1-v100 --gpus 0-4 --cpus 40",
		"affinity-spill-json":    "affinity -f testdata/object.yaml --gpus 1 --cpus 5 --free-cpus 1-7 -o json",
		"affinity-unknown":       "affinity -f testdata/unknownnuma.txt --gpus 0,1 --cpus 16",
		"affinity-unknown-json":  "affinity -f testdata/unknownnuma.txt --gpus 0 --cpus 16 -o json",
		"pick-crossed-pairs":     "pick -n 4 -f testdata/crossedpairs.txt",
		"affinity-memoryless":    "affinity -f testdata/object.yaml --gpus 5",
		"export-text":            "export -f testdata/dgx1v.txt --name node-a --gpu-model Tesla_V100 --resource example.com/gpu",
		"export-object":          "export -f testdata/object.yaml",
		"export-configmap":       "export -f testdata/object.yaml --format configmap --namespace ns-a",
		"generate-kubelet":       "generate kubelet-config --machine dgx1-v100",
		"generate-kubelet-text":  "generate kubelet-config -f testdata/dgx1v.txt --numactl testdata/numactl.txt --policy single-numa-node --memory-manager None",
		"generate-kubelet-lscpu": "generate kubelet-config -f testdata/dgx1v.txt --lscpu testdata/lscpu.txt",
		"generate-pod":           "generate pod --gpus 4 --nccl-topo-configmap nccl-topology",
		"generate-pod-inference": "generate pod --workload inference --gpus 1 --policy single-numa-node",
		"generate-docker":        "generate docker --machine dgx-a100 -n 2 --cpus 16",
		"generate-docker-gpus":   "generate docker -f testdata/dgx1v.txt --gpus 0-4 --free-cpus 2-39 --memory 192Gi --shm-size 48Gi",
		"generate-nccl":          "generate nccl-topo --machine dgx1-v100 --arch x86_64 --vendor GenuineIntel --family 6 --model 79",
		"generate-profile":       "generate scheduler-profile --workload training",
		"machines":               "machines",
		"help":                   "--help",
		"help-pick":              "pick --help",
		"help-matrix":            "matrix --help",
		"help-groups":            "groups --help",
		"help-estimate":          "estimate --help",
		"help-affinity":          "affinity --help",
		"help-export":            "export --help",
		"help-generate":          "generate --help",
		"help-generate-kubelet":  "generate kubelet-config --help",
		"help-generate-pod":      "generate pod --help",
		"help-generate-docker":   "generate docker --help",
		"help-generate-nccl":     "generate nccl-topo --help",
		"help-generate-profile":  "generate scheduler-profile --help",
		"help-machines":          "machines --help",
		"help-version":           "version --help",
		"help-check":             "check --help",
		"help-explain":           "explain --help",
		"explain-linked":         "explain -n team trainer --from testdata/explain.yaml",
		"explain-linked-yaml":    "explain -n team pod/trainer --from testdata/explain.yaml -o yaml",
		"explain-bound":          "explain -n team batch --from testdata/explain.yaml",
		"explain-short":          "explain -n team podgroup/llm --from testdata/explain.yaml",
		"explain-gang":           "explain -n team pair-0 --from testdata/explain.yaml",
		"help-fabric":            "fabric --help",
		"help-fabric-place":      "fabric place --help",
		"help-fabric-label":      "fabric label --help",
		"help-fabric-show":       "fabric show --help",
		"help-what-if":           "what-if --help",
		"help-snapshot-save":     "snapshot save --help",
		"help-verify-node":       "verify-node --help",
		"help-uninstall":         "uninstall --help",
		"no-arguments-show-help": "",
	}
	checkGolden(t, cases)
}

// checkGolden compares each command line's output with testdata/golden/<name>.txt.
func checkGolden(t *testing.T, lines map[string]string) {
	t.Helper()
	for name, line := range lines {
		t.Run(name, func(t *testing.T) {
			got := mustRun(t, "", strings.Fields(line)...)
			file := filepath.Join("testdata", "golden", name+".txt")
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("nvtopo %s (-want,+got):\n%s", line, diff)
			}
		})
	}
}

// TestBadCalls: bad calls report the fault.
func TestBadCalls(t *testing.T) {
	cut := "\tGPU0\tGPU1\nGPU0\t X \tNV1\n"
	cutNPU := "\tNPU0 NPU1\nNPU0 X HCCS\n"
	cutROCm := "== Link Type between two GPUs ==\n  GPU0 GPU1\nGPU0 0 XGMI\nGPU1 XGM"
	pair := "\tGPU0\tGPU1\nGPU0\t X \tNV1\nGPU1\tNV1\t X \n"
	cases := map[string]struct {
		line  string
		input string
		code  int
		want  []string // all of them in the message
	}{
		"an unknown command":                {line: "piick", code: ExitUsage, want: []string{`"piick"`, "did you mean pick?"}},
		"a command far from any":            {line: "frobnicate", code: ExitUsage, want: []string{"nvtopo --help"}},
		"an unknown flag":                   {line: "pick --bar", code: ExitUsage, want: []string{"--bar", "nvtopo pick --help"}},
		"a flag of the wrong type":          {line: "pick -n x", code: ExitUsage, want: []string{"--count", `"x"`}},
		"a positional argument":             {line: "pick 4", code: ExitUsage, want: []string{`"4"`, "flags only"}},
		"no source":                         {line: "pick -n 2", code: ExitUsage, want: []string{"-f, --machine and --node", "0 are given"}},
		"two sources":                       {line: "pick -n 2 -f x --machine y", code: ExitUsage, want: []string{"2 are given"}},
		"no count":                          {line: "pick --machine l40s-8", code: ExitUsage, want: []string{"-n is needed"}},
		"no group size":                     {line: "groups --machine l40s-8", code: ExitUsage, want: []string{"-g is needed"}},
		"an unknown machine":                {line: "matrix --machine nope", code: ExitUsage, want: []string{"--machine", `"nope"`, "dgx1-v100"}},
		"a flag of the text on a machine":   {line: "matrix --machine l40s-8 --gpu-model X", code: ExitUsage, want: []string{"--gpu-model", "--machine l40s-8"}},
		"a flag of the text on an object":   {line: "matrix -f testdata/object.yaml --pcie-gen 5", code: ExitUsage, want: []string{"--pcie-gen", "testdata/object.yaml is a NodeGPUTopology"}},
		"a PCIe generation nobody has":      {line: "matrix -f - --pcie-gen 9", code: ExitUsage, want: []string{"--pcie-gen 9"}},
		"a context without a node":          {line: "matrix -f - --context c", code: ExitUsage, want: []string{"--context", "--node"}},
		"standard input twice":              {line: "matrix -f - --numactl -", code: ExitUsage, want: []string{"-f and --numactl"}},
		"a policy nobody has":               {line: "pick -n 2 -f - --policy tight", code: ExitUsage, want: []string{"--policy", `"tight"`, "single-numa-node"}},
		"a link class nobody has":           {line: "pick -n 2 -f - --min-link NVX", code: ExitUsage, want: []string{"--min-link", "NVX"}},
		"a bandwidth of nothing":            {line: "pick -n 2 -f - --min-bandwidth 0", code: ExitUsage, want: []string{`--min-bandwidth "0"`}},
		"a bandwidth that is not a number":  {line: "pick -n 2 -f - --min-bandwidth NaN", code: ExitUsage, want: []string{`--min-bandwidth "NaN"`}},
		"nothing to explain":                {line: "explain", code: ExitUsage, want: []string{"one pod, or one KIND/NAME", "explain --help"}},
		"a kind that is not explained":      {line: "explain node/x", code: ExitUsage, want: []string{`"node/x"`, `no kind "node"`, "pod, podgroup, job, elasticjob, deployment, statefulset, jobset, leaderworkerset or replicaset"}},
		"an ElasticJob that is not there":   {line: "explain ej/x -n team --from testdata/explain.yaml", code: ExitNoAnswer, want: []string{"ElasticJob team/x: not found"}},
		"a kind of another API":             {line: "explain deployment.batch/x", code: ExitUsage, want: []string{`no kind "deployment.batch"`}},
		"a kind and no name":                {line: "explain deploy/", code: ExitUsage, want: []string{"want deployment/NAME"}},
		"a Deployment that is not there":    {line: "explain deployment.apps/x -n team --from testdata/explain.yaml", code: ExitNoAnswer, want: []string{"Deployment team/x, or a pod of it: not found"}},
		"a pod that is not there":           {line: "explain pod/x -n team --from testdata/explain.yaml", code: ExitNoAnswer, want: []string{"pod team/x", "not found"}},
		"a name of nothing":                 {line: "explain x -n team --from testdata/explain.yaml", code: ExitNoAnswer, want: []string{"no pod, podgroup, job, elasticjob, deployment,", "replicaset team/x: not found"}},
		"an explanation as nobody reads it": {line: "explain x -o wide", code: ExitUsage, want: []string{"--output", `"wide"`}},
		"files and a cluster":               {line: "explain x --from y --context z", code: ExitUsage, want: []string{"--from", "--context"}},
		"an output nobody has":              {line: "pick -n 2 -f - -o csv", code: ExitUsage, want: []string{"--output", `"csv"`}},
		"a free GPU that is not there":      {line: "pick -n 1 -f testdata/object.yaml --free 1,3", code: ExitUsage, want: []string{"--free", "no GPU 3", "1,2,4,5"}},
		"a free list that is none":          {line: "pick -n 1 -f testdata/object.yaml --free 1,,2", code: ExitUsage, want: []string{"--free", `"1,,2"`}},
		"a free range backwards":            {line: "pick -n 1 -f testdata/object.yaml --free 2-1", code: ExitUsage, want: []string{`"2-1"`}},
		"a free GPU that is lost":           {line: "pick -n 1 -f testdata/object.yaml --free 2,4", code: ExitUsage, want: []string{"--free", "GPU 4", "GPU is lost"}},
		"a free GPU that is for one only":   {line: "pick -n 2 -f testdata/degraded.yaml --free 1,2", code: ExitUsage, want: []string{"--free", "GPU 2", "usable alone only: NVLink error: Xid 74"}},
		"a resource nobody has":             {line: "pick -n 1 -f testdata/object.yaml --resource amd.com/gpu", code: ExitUsage, want: []string{"amd.com/gpu", "example.com/npu, nvidia.com/gpu"}},
		"a cell nobody shows":               {line: "matrix -f - --show colour", code: ExitUsage, want: []string{"--show", "colour"}},
		"a format nobody writes":            {line: "export -f - --format nrt", code: ExitUsage, want: []string{"--format", "nrt", "configmap"}},
		"a namespace for a NodeGPUTopology": {
			line: "export -f - --namespace a", code: ExitUsage, want: []string{"--namespace", "configmap"},
		},
		"a size that is none":             {line: "estimate -n 2 --bandwidth 1 --size big", code: ExitUsage, want: []string{"--size", `"big"`}},
		"an IEC size in binary units":     {line: "estimate -n 2 --bandwidth 1 --size 1MiB --binary-units", code: ExitUsage, want: []string{"--size", "--binary-units"}},
		"an algorithm nobody has":         {line: "estimate -n 2 --bandwidth 1 --algorithm star", code: ExitUsage, want: []string{"--algorithm", "star"}},
		"a collective nobody has":         {line: "estimate -n 2 --bandwidth 1 --collective scan", code: ExitUsage, want: []string{"--collective", "scan"}},
		"a latency below zero":            {line: "estimate -n 2 --bandwidth 1 --latency -1", code: ExitUsage, want: []string{"--latency"}},
		"GPUs of no machine":              {line: "estimate --gpus 0 --bandwidth 1", code: ExitUsage, want: []string{"--gpus needs a machine"}},
		"a count of no bandwidth":         {line: "estimate -n 2", code: ExitUsage, want: []string{"--bandwidth"}},
		"a count on a machine":            {line: "estimate -n 2 --machine l40s-8", code: ExitUsage, want: []string{"-n", "--gpus"}},
		"an affinity of nothing":          {line: "affinity --machine l40s-8", code: ExitUsage, want: []string{"--gpus is needed"}},
		"an affinity of no CPUs":          {line: "affinity --machine l40s-8 --gpus 0 --cpus 0", code: ExitUsage, want: []string{"--cpus 0"}},
		"free CPUs that are none":         {line: "affinity --machine l40s-8 --gpus 0 --free-cpus 3-1", code: ExitUsage, want: []string{"--free-cpus"}},
		"free CPUs that are not there":    {line: "affinity -f testdata/object.yaml --gpus 1 --free-cpus 6-9", code: ExitUsage, want: []string{"--free-cpus", "8-9"}},
		"a file that is not there":        {line: "matrix -f testdata/none", code: ExitInput, want: []string{"testdata/none"}},
		"a file of NUMA that is cut":      {line: "matrix -f testdata/dgx1v.txt --numactl -", input: "node 0 cpus: x", code: ExitInput, want: []string{"standard input: line 1, column"}},
		"text that is cut":                {line: "matrix -f -", input: cut, code: ExitInput, want: []string{"standard input: line 2, column", "GPU1 is missing"}},
		"npu-smi's text that is cut":      {line: "matrix -f -", input: cutNPU, code: ExitInput, want: []string{"standard input: line 2, column", "NPU1 is missing"}},
		"rocm-smi's text that is cut":     {line: "matrix -f -", input: cutROCm, code: ExitInput, want: []string{"standard input: line 4, column", "GPU1 ends before column GPU1"}},
		"an empty input":                  {line: "matrix -f -", code: ExitInput, want: []string{"standard input: line 1"}},
		"JSON that is cut":                {line: "matrix -f -", input: "{\n  \"kind\": ", code: ExitInput, want: []string{"standard input: line 2, column"}},
		"YAML that is none":               {line: "matrix -f -", input: "kind: a\n  b: c", code: ExitInput, want: []string{"standard input: not YAML", "line 2"}},
		"another kind":                    {line: "matrix -f -", input: "kind: List\napiVersion: v1\nitems: []", code: ExitInput, want: []string{`kind "List"`, "want one NodeGPUTopology"}},
		"several objects":                 {line: "matrix -f -", input: "kind: A\n---\nkind: B\n", code: ExitInput, want: []string{"2 YAML documents"}},
		"a field nobody knows":            {line: "matrix -f -", input: strings.Replace(object(t), "index: 1", "indx: 1", 1), code: ExitInput, want: []string{"spec.gpus[0].indx: there is no such field"}},
		"a field of the wrong type":       {line: "matrix -f -", input: strings.Replace(object(t), "index: 1", "index: one", 1), code: ExitInput, want: []string{"spec.gpus[0].index: want a whole number, not a text"}},
		"a field twice":                   {line: "matrix -f -", input: strings.Replace(object(t), "index: 1,", "index: 1, index: 1,", 1), code: ExitInput, want: []string{"index"}},
		"an object that is no graph":      {line: "matrix -f -", input: strings.Replace(object(t), "lanes: 4, ", "", 1), code: ExitInput, want: []string{"standard input", `"gpu-node-7"`, "spec.linkKinds[0].class"}},
		"more GPUs than are free":         {line: "pick -n 3 -f testdata/object.yaml", code: ExitNoAnswer, want: []string{"3 GPUs", "2 are free: 2,5"}},
		"a pair with one for one only":    {line: "pick -n 2 -f testdata/degraded.yaml --min-link NVLINK --free 1", code: ExitNoAnswer, want: []string{"2 GPUs", "1 are free: 1"}},
		"GPUs of two models":              {line: "pick -n 2 -f testdata/object.yaml", code: ExitNoAnswer, want: []string{"one model", "--allow-mixed-models"}},
		"NUMA nodes that are too small":   {line: "pick -n 2 -f testdata/object.yaml --allow-mixed-models --policy restricted", code: ExitNoAnswer, want: []string{"--policy restricted", "1 NUMA"}},
		"NUMA nodes that nobody knows":    {line: "pick -n 2 -f - --policy single-numa-node", input: pair, code: ExitNoAnswer, want: []string{"NUMA nodes of GPUs 0,1 are not known", "--policy single-numa-node", "--numactl"}},
		"links that are too slow":         {line: "pick -n 5 -f testdata/dgx1v.txt --min-link NVLINK", code: ExitNoAnswer, want: []string{"--min-link", "NV1"}},
		"a ring that is too slow":         {line: "pick -n 2 -f -  --min-bandwidth 25.5", input: pair, code: ExitNoAnswer, want: []string{"has 25 GB/s", "--min-bandwidth demands 25.5"}},
		"groups that do not fit":          {line: "groups -g 3 -f testdata/object.yaml", code: ExitNoAnswer, want: []string{"groups of 3", "2 are free: 2,5"}},
		"CPUs that nobody named":          {line: "affinity -f - --gpus 0", input: pair, code: ExitNoAnswer, want: []string{"--numactl"}},
		"more CPUs than there are":        {line: "affinity -f testdata/object.yaml --gpus 1 --cpus 8", code: ExitNoAnswer, want: []string{"--cpus 8", "only 7 CPUs", "1-7"}},
		"CPUs near a GPU of unknown node": {line: "affinity -f testdata/object.yaml --resource example.com/npu --gpus 9", code: ExitNoAnswer, want: []string{"near GPUs 9", "--cpus N"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := run(t, tc.input, strings.Fields(tc.line)...)
			if err == nil {
				t.Fatalf("nvtopo %s succeeded", tc.line)
			}
			if got := ExitCode(err); got != tc.code {
				t.Errorf("exit code %d, want %d (%v)", got, tc.code, err)
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("message lacks %q: %v", want, err)
				}
			}
		})
	}
}

func object(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile("testdata/object.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestJSONErrorPosition: JSON errors have line and column.
func TestJSONErrorPosition(t *testing.T) {
	_, err := run(t, "{\n \"apiVersion\": \"topology.nvtopo.dev/v1alpha1\", \"kind\": \"NodeGPUTopology\",\n \"spec\": {\"gpus\": 7}}", "matrix", "-f", "-")
	if err == nil || !strings.Contains(err.Error(), "standard input: line 3, column") || !strings.Contains(err.Error(), "spec.gpus") {
		t.Errorf("got %v", err)
	}
}

// TestKubectlPlugin: the plugin is called through kubectl.
func TestKubectlPlugin(t *testing.T) {
	for argv0, want := range map[string]string{
		"/usr/local/bin/nvtopo":         "nvtopo",
		"./kubectl-nvtopo":              "kubectl nvtopo",
		"/opt/krew/kubectl-nvtopo.exe":  "kubectl nvtopo",
		"/home/someone/nvtopo-download": "nvtopo",
	} {
		cmd := New(argv0)
		var out bytes.Buffer
		cmd.SetOut(&out)
		cmd.SetArgs([]string{"pick", "--help"})
		if err := cmd.Execute(); err != nil {
			t.Fatal(err)
		}
		for _, line := range []string{"\n  " + want + " pick -n COUNT [flags]\n", "\n  " + want + " pick -n 4 --machine dgx1-v100\n"} {
			if !strings.Contains(out.String(), line) {
				t.Errorf("%s: help lacks %q:\n%s", argv0, line, out.String())
			}
		}
		if strings.Contains(out.String(), programInText) {
			t.Errorf("%s: help has the placeholder %s", argv0, programInText)
		}
	}
}

func TestUnknownErrorExitCode(t *testing.T) {
	if got := ExitCode(errors.New("disk full")); got != ExitInput {
		t.Errorf("got %d", got)
	}
	if got := ExitCode(nil); got != ExitOK {
		t.Errorf("no error: got %d", got)
	}
}
