// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os/exec"
	"strings"
	"testing"
)

func TestBadGenerators(t *testing.T) {
	pair := "\tGPU0\tGPU1\nGPU0\t X \tNV1\nGPU1\tNV1\t X \n"
	cases := map[string]struct {
		line, input string
		code        int
		want        string
	}{
		"an unknown generator":                 {line: "generate pods", code: ExitUsage, want: "did you mean pod"},
		"kubelet of no machine":                {line: "generate kubelet-config", code: ExitUsage, want: "0 are given"},
		"a policy nobody has":                  {line: "generate kubelet-config --machine dgx-a100 --policy tight", code: ExitUsage, want: `policy "tight"`},
		"memory that is none":                  {line: "generate kubelet-config --machine dgx-a100 --kube-reserved much", code: ExitUsage, want: `--kube-reserved "much"`},
		"memory below nothing":                 {line: "generate kubelet-config --machine dgx-a100 --system-reserved -1Gi", code: ExitUsage, want: `--system-reserved "-1Gi"`},
		"a number without end":                 {line: "generate kubelet-config --machine dgx-a100 --eviction-memory " + strings.Repeat("1", 65), code: ExitUsage, want: "65 characters"},
		"threads of a core twice":              {line: "generate kubelet-config -f testdata/dgx1v.txt --threads-per-core 2 --lscpu x", code: ExitUsage, want: "--threads-per-core cannot be used with it"},
		"more threads than a core has":         {line: "generate kubelet-config -f testdata/dgx1v.txt --threads-per-core 9", code: ExitUsage, want: "--threads-per-core 9: want 1 to 8"},
		"threads of a machine that is known":   {line: "generate kubelet-config --machine dgx-a100 --threads-per-core 2", code: ExitUsage, want: "--threads-per-core goes with captured text only"},
		"lscpu and matrix at once":             {line: "generate kubelet-config -f - --lscpu -", input: pair, code: ExitUsage, want: "-f and --lscpu cannot both be standard input"},
		"lscpu of another machine":             {line: "generate kubelet-config -f testdata/dgx1v.txt --lscpu -", input: "# CPU,Core\n0,0\n1,1\n", code: ExitInput, want: "which lscpu does not list"},
		"lscpu that is something else":         {line: "generate kubelet-config -f testdata/dgx1v.txt --lscpu -", input: "CPU(s): 2\n", code: ExitInput, want: "standard input: line 1, column 10: no cores found"},
		"a machine without NUMA nodes":         {line: "generate kubelet-config -f -", input: pair, code: ExitNoAnswer, want: "--numactl"},
		"a pod without GPUs":                   {line: "generate pod", code: ExitUsage, want: "--gpus is needed"},
		"a pod without CPUs":                   {line: "generate pod --gpus 1 --cpus 0", code: ExitUsage, want: "--cpus 0"},
		"a pod of more GPUs than there are":    {line: "generate pod --gpus 100", code: ExitUsage, want: "100 GPUs"},
		"a pod of no workload":                 {line: "generate pod --gpus 1 --workload batch", code: ExitUsage, want: `"batch"`},
		"a pod with a bad wish":                {line: "generate pod --gpus 1 --min-link NV0", code: ExitUsage, want: "nvtopo.dev/min-link"},
		"a pod that shares all its memory":     {line: "generate pod --gpus 1 --shm-size 32Gi", code: ExitUsage, want: "shared memory"},
		"a container of no GPUs":               {line: "generate docker --machine dgx-a100", code: ExitUsage, want: "either -n or --gpus"},
		"a container of GPUs named twice":      {line: "generate docker --machine dgx-a100 -n 1 --gpus 0", code: ExitUsage, want: "either -n or --gpus"},
		"a container of no GPU":                {line: "generate docker --machine dgx-a100 -n 0", code: ExitUsage, want: "-n 0"},
		"free GPUs beside a list":              {line: "generate docker --machine dgx-a100 --gpus 0 --free 0", code: ExitUsage, want: "--free goes with -n"},
		"a container of a GPU that is lost":    {line: "generate docker -f testdata/object.yaml --gpus 4", code: ExitUsage, want: "GPU is lost"},
		"a container of more GPUs than free":   {line: "generate docker -f testdata/object.yaml -n 3", code: ExitNoAnswer, want: "2 are free"},
		"a container near no CPUs":             {line: "generate docker -f - --gpus 0", input: pair, code: ExitNoAnswer, want: "--numactl"},
		"a container with more than its nodes": {line: "generate docker --machine dgx-a100 --gpus 0 --memory 129Gi", code: ExitUsage, want: "NUMA nodes 3 have"},
		"NCCL of unknown processors":           {line: "generate nccl-topo --machine dgx-a100", code: ExitUsage, want: "--arch is needed"},
		"NCCL of Intel without a model":        {line: "generate nccl-topo --machine dgx-a100 --arch x86_64 --vendor GenuineIntel", code: ExitUsage, want: "family and model"},
		"NCCL of text without addresses":       {line: "generate nccl-topo -f - --arch arm64", input: pair, code: ExitNoAnswer, want: "PCI address of GPU 0"},
		"a profile of no workload":             {line: "generate scheduler-profile --workload batch", code: ExitUsage, want: "--workload"},
		"a profile that writes elsewhere":      {line: "generate scheduler-profile --annotation-write Later", code: ExitUsage, want: `--annotation-write "Later"`},
		"a profile that others outvote":        {line: "generate scheduler-profile --topology-weight 5", code: ExitUsage, want: "outvote"},
		"a profile without shares":             {line: "generate scheduler-profile --bandwidth-weight 0 --latency-weight 0 --fragmentation-weight 0", code: ExitUsage, want: "not all may be 0"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := run(t, tc.input, strings.Fields(tc.line)...)
			if err == nil || ExitCode(err) != tc.code || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("exit code %d: %v; want %d and %q", ExitCode(err), err, tc.code, tc.want)
			}
		})
	}
}

// TestReservedSiblings: the reserved CPUs of a pasted machine are whole cores.
func TestReservedSiblings(t *testing.T) {
	const text = "generate kubelet-config -f testdata/dgx1v.txt"
	tests := map[string]struct {
		line, input string
		want        string // reservedSystemCPUs, and the option that whole cores have
	}{
		"nobody knows the hyper-threads":    {line: text, want: "0,20"},
		"two of each core":                  {line: text + " --threads-per-core 2", want: "0,20,40,60 full-pcpus-only"},
		"two of each core, beside numactl":  {line: text + " --numactl testdata/numactl.txt --threads-per-core 2", want: "0,20,40,60 full-pcpus-only"},
		"one of each core":                  {line: text + " --threads-per-core 1", want: "0,20"},
		"two cores of each node":            {line: text + " --threads-per-core 2 --reserved-cores 2", want: "0-1,20-21,40-41,60-61 full-pcpus-only"},
		"lscpu":                             {line: text + " --lscpu -", input: "Thread(s) per core:   2\n", want: "0,20,40,60 full-pcpus-only"},
		"lscpu -p, whose cores are counted": {line: text + " --lscpu testdata/lscpu.txt", want: "0-1,20-21 full-pcpus-only"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var got string
			for line := range strings.Lines(mustRun(t, tc.input, strings.Fields(tc.line)...)) {
				if reserved, ok := strings.CutPrefix(line, "reservedSystemCPUs: "); ok {
					got = strings.Trim(reserved, "\"\n") + got
				}
				if strings.HasPrefix(line, "  full-pcpus-only: ") {
					got += " full-pcpus-only"
				}
			}
			if got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

// TestDockerAffinity: docker and affinity agree about the resources of a container beside the same GPUs.
func TestDockerAffinity(t *testing.T) {
	for _, machine := range []string{"dgx-a100", "dgx1-v100", "gb200-tray", "l40s-8"} {
		docker := mustRun(t, "", "generate", "docker", "--machine", machine, "--gpus", "0,2", "--cpus", "12")
		affinity := mustRun(t, "", "affinity", "--machine", machine, "--gpus", "0,2", "--cpus", "12")
		for word := range strings.FieldsSeq(affinity) {
			if strings.HasPrefix(word, "--cpuset") && !strings.Contains(docker, word+" ") {
				t.Errorf("%s: affinity says %s, docker\n%s", machine, word, docker)
			}
		}
	}
}

// FuzzGenerateDocker gives any text to the flags that are lists, amounts and words: the command
// is refused, or a shell reads one docker command with the image as it was given.
func FuzzGenerateDocker(f *testing.F) {
	f.Add("0,2-4", "2-31,64-95", "64Gi", "example.com/a:1", "python train.py")
	f.Add("0-1", "", "1e10", "it's", "$(id) `id` ;")
	f.Add("7-0", "9999", "-1", "-v", "")
	f.Fuzz(func(t *testing.T, gpus, cpus, memory, image, command string) {
		cmd := New(programName)
		var out, errOut strings.Builder
		cmd.SetOut(&out)
		cmd.SetErr(&errOut)
		cmd.SetArgs([]string{
			"generate", "docker", "--machine", "dgx-a100", "--gpus=" + gpus, "--free-cpus=" + cpus, "--memory=" + memory,
			"--shm-size=1Gi", "--image=" + image, "--command=" + command,
		})
		if err := cmd.ExecuteContext(t.Context()); err != nil {
			if code := ExitCode(err); code != ExitUsage && code != ExitNoAnswer {
				t.Fatalf("exit code %d: %v", code, err)
			}
			return
		}
		if strings.ContainsRune(image+command, 0) {
			return // no shell takes it
		}
		sh := exec.CommandContext(t.Context(), "sh", "-euc", "docker() { printf '%s\\000' \"$@\"; }\n"+out.String())
		got, err := sh.Output()
		if err != nil {
			t.Fatalf("sh: %v\n%s", err, out.String())
		}
		words := strings.Split(strings.TrimSuffix(string(got), "\x00"), "\x00")
		want := append([]string{image}, strings.Fields(command)...)
		if len(words) < len(want) || strings.Join(words[len(words)-len(want):], "\x00") != strings.Join(want, "\x00") {
			t.Fatalf("the shell reads %q, want it to end with %q", words, want)
		}
	})
}
