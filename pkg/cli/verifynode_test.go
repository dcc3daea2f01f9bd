// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager/checkpoint"

	"github.com/nvtopo/nvtopo/pkg/node/nodeverify"
)

// GPUs of the catalogue's DGX-1 by their index.
const (
	gpu0 = "GPU-72d80e63-15ba-868e-a35f-237f47eb9516"
	gpu1 = "GPU-3bbcd8b0-9eed-8f11-8c5e-008c77ee392e"
	gpu3 = "GPU-cfc6148d-3257-8cc1-bdb2-1fb79d634384"
)

// trainerPod has GPUs 0 and 3 of a DGX-1, whose NUMA node 0 has CPUs 0-19 and 40-59.
const trainerPod = `
apiVersion: v1
kind: Pod
metadata:
  name: trainer-0
  namespace: team
  uid: 5f0c-11
  annotations:
    nvtopo.dev/allocation: '{"version":1,"node":"gpu-1","podUID":"5f0c-11","enforced":true,"containers":[{"name":"train","resource":"nvidia.com/gpu","gpus":["` + gpu0 + `","` + gpu3 + `"]}]}'
spec:
  nodeName: gpu-1
  containers: [{name: train, image: i}, {name: log, image: i}]
status:
  containerStatuses:
  - {name: train, containerID: containerd://aaaa}
  - {name: log, containerID: containerd://bbbb}
`

// fakeNode writes proc, sys and kubelet's record of a node on which that pod runs: its trainer
// on the CPUs given, its memory and threads on NUMA node 0, and a log shipper without GPUs.
func fakeNode(t *testing.T, cpus, environment string, recorded ...string) (root string) {
	t.Helper()
	root = t.TempDir()
	put := func(path, text string) {
		t.Helper()
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	process := func(pid int, name, cpus, cgroup, environment string) {
		dir := "proc/" + strconv.Itoa(pid)
		stat := fmt.Sprintf("%d (%s) S 1 1 1 0 -1 0 1 0 0 0 1 2 0 0 20 0 3 0 100 1000 200 1 1 1 0 0 0 0 0 1 2 0 0 0 17 2 0 0 0 0 0\n", pid, name)
		put(dir+"/status", "Name:\t"+name+"\nCpus_allowed_list:\t"+cpus+"\nMems_allowed_list:\t0-1\n")
		put(dir+"/stat", stat)
		put(dir+fmt.Sprintf("/task/%d/stat", pid), stat)
		put(dir+"/environ", environment+"\x00")
		put(dir+"/cgroup", "0::"+cgroup+"\n")
		put(dir+"/numa_maps", "7f0000000000 default anon=262144 N0=261120 N1=1024 kernelpagesize_kB=4\n")
	}
	process(1, "systemd", "0-79", "/init.scope", "")
	process(4242, "python", cpus, "/kubepods/pod5f0c-11/aaaa", environment)
	process(4243, "logger", "0-79", "/kubepods/pod5f0c-11/bbbb", "")
	put("sys/devices/system/cpu/online", "0-79\n")
	put("sys/devices/system/node/has_memory", "0-1\n")
	entries := []checkpoint.PodDevicesEntry{{
		PodUID: "5f0c-11", ContainerName: "train", ResourceName: "nvidia.com/gpu", DeviceIDs: checkpoint.DevicesPerNUMA{0: recorded},
	}}
	data, err := checkpoint.New(entries, map[string][]string{}).MarshalCheckpoint()
	if err != nil {
		t.Fatal(err)
	}
	put("var/lib/kubelet/device-plugins/kubelet_internal_checkpoint", string(data))
	return root
}

// savedPod writes the pod and its node's graph as kubectl gets them.
func savedPod(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "pod.yaml")
	graph := mustRun(t, "", "export", "--machine", "dgx1-v100", "--name", "gpu-1")
	if err := os.WriteFile(file, []byte(trainerPod+"---\n"+graph), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// fakeSMI puts a program nvidia-smi first in PATH that prints the output of a container with GPUs 0 and 3
// of a DGX-1.
func fakeSMI(t *testing.T) {
	t.Helper()
	const script = `#!/bin/sh
case "$*" in
-L) printf 'GPU 0: Tesla V100-SXM2-32GB (UUID: ` + gpu0 + `)\nGPU 1: Tesla V100-SXM2-32GB (UUID: ` + gpu3 + `)\n' ;;
"topo -m") printf '\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tNV2\t0-19,40-59\t0\nGPU1\tNV2\t X \t0-19,40-59\t0\n' ;;
*) exit 9 ;;
esac
`
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "nvidia-smi"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
}

func TestVerifyNodePod(t *testing.T) {
	from := savedPod(t)
	root := fakeNode(t, "0-9", "NVIDIA_VISIBLE_DEVICES="+gpu0+","+gpu3, gpu0, gpu3)
	got := mustRun(t, "", "verify-node", "trainer-0", "-n", "team", "-c", "train", "--from", from, "--root", root)
	want, err := os.ReadFile("testdata/golden/verify-node.txt")
	if *update {
		err = os.WriteFile("testdata/golden/verify-node.txt", []byte(got), 0o600)
		want = []byte(got)
	}
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("(-want,+got)\n%s", diff)
	}
	page, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), got) {
		t.Errorf("docs/cli.md does not show what is printed:\n%s", got)
	}
}

// A tenant's text must not reach the user's terminal unchanged.
func TestVerifyNodeControlCharacters(t *testing.T) {
	root := fakeNode(t, "0-9", "CUDA_VISIBLE_DEVICES=\x1b[2J0\nok  visible GPUs", gpu0, gpu3)
	out, err := run(t, "", "verify-node", "trainer-0", "-n", "team", "-c", "train", "--from", savedPod(t), "--root", root, "-o", "wide")
	if ExitCode(err) != ExitNoAnswer {
		t.Errorf("error %v, want the exit code %d", err, ExitNoAnswer)
	}
	if strings.Contains(out, "\x1b") || strings.Contains(out, "\nok  visible GPUs\n") || !strings.Contains(out, "\ufffd[2J0\ufffdok") {
		t.Errorf("%q", out)
	}
}

// Standard input is read once, for all containers.
func TestVerifyNodeStdin(t *testing.T) {
	fakeSMI(t)
	root := fakeNode(t, "0-9", "NVIDIA_VISIBLE_DEVICES="+gpu0+","+gpu3, gpu0, gpu3)
	const topo = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tNV2\t0-19,40-59\t0\nGPU1\tNV2\t X \t0-19,40-59\t0\n"
	out, err := run(t, topo, "verify-node", "trainer-0", "-n", "team", "--from", savedPod(t), "--root", root, "-f", "-", "-o", "json")
	if err != nil && ExitCode(err) != ExitNoAnswer {
		t.Fatal(err)
	}
	var r nodeverify.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	for _, c := range r.Containers {
		if len(r.Containers) != 2 || c.CPUs != "0-19,40-59" && len(c.GPUs) > 0 {
			t.Errorf("of %d containers, want 2, %s has the CPUs %q", len(r.Containers), c.Container, c.CPUs)
		}
	}
}

// TestVerifyNodeMatrixWithoutUUIDs: -f takes a matrix if there is no nvidia-smi to read UUIDs from.
func TestVerifyNodeMatrixWithoutUUIDs(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	dir := t.TempDir()
	matrix, pod := filepath.Join(dir, "topo.txt"), filepath.Join(dir, "pod.yaml")
	for file, text := range map[string]string{matrix: mustRun(t, "", "matrix", "--machine", "dgx1-v100"), pod: trainerPod} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	numbers := fakeNode(t, "0-9", "NVIDIA_VISIBLE_DEVICES=0,3", gpu0, gpu3)
	tests := map[string]struct {
		args        []string
		wantGPUs    []string
		wantCPUs    string
		wantUnknown string // part of why the place of the CPUs is not known
		wantVisible nodeverify.Verdict
	}{
		"the node's NodeGPUTopology has them": {
			args: []string{"trainer-0", "-c", "train", "--from", savedPod(t)}, wantGPUs: []string{gpu0, gpu3}, wantCPUs: "0-19,40-59", wantVisible: nodeverify.OK,
		},
		"the environment has numbers": {
			args: []string{"--pid", "4242"}, wantGPUs: []string{"GPU-0", "GPU-3"}, wantCPUs: "0-19,40-59", wantVisible: nodeverify.Unknown,
		},
		"nobody has them": {
			args: []string{"trainer-0", "-c", "train", "--from", pod}, wantGPUs: []string{gpu0, gpu3},
			wantUnknown: "which GPU of the graph is " + gpu0 + " is not known: " + matrix + " has no UUIDs", wantVisible: nodeverify.Unknown,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			out := mustRun(t, "", append([]string{"verify-node", "-f", matrix, "--root", numbers, "-o", "json"}, tc.args...)...)
			var r nodeverify.Report
			if err := json.Unmarshal([]byte(out), &r); err != nil {
				t.Fatal(err)
			}
			c := r.Containers[0]
			if diff := cmp.Diff(tc.wantGPUs, c.GPUs); diff != "" || c.CPUs != tc.wantCPUs {
				t.Errorf("CPUs %q, want %q; GPUs (-want,+got)\n%s", c.CPUs, tc.wantCPUs, diff)
			}
			for _, l := range c.Lines {
				if l.Check == "visible GPUs" && l.Verdict != tc.wantVisible {
					t.Errorf("%+v, want %s", l, tc.wantVisible)
				}
				if l.Check == "allowed CPUs" && (l.Verdict == nodeverify.Unknown) != (tc.wantUnknown != "") || !strings.Contains(l.Found, tc.wantUnknown) && l.Check == "allowed CPUs" {
					t.Errorf("%+v, want unknown because %q", l, tc.wantUnknown)
				}
			}
		})
	}
}

// TestVerifyNodeErrors: errors of verify-node report the fault.
func TestVerifyNodeErrors(t *testing.T) {
	from := savedPod(t)
	for name, tc := range map[string]struct {
		cpus, environment string
		recorded          []string
		wantWrong         []string // checks of the container train
	}{
		"kubelet gave another GPU": {"0-9", "NVIDIA_VISIBLE_DEVICES=" + gpu0 + "," + gpu1, []string{gpu0, gpu1}, []string{"kubelet's record"}},
		"the image asks for all":   {"0-9", "NVIDIA_VISIBLE_DEVICES=all", []string{gpu0, gpu3}, []string{"visible GPUs"}},
		"pinned to the wrong CPUs": {"20-29", "NVIDIA_VISIBLE_DEVICES=0,3", []string{gpu0, gpu3}, []string{"allowed CPUs"}},
	} {
		t.Run(name, func(t *testing.T) {
			root := fakeNode(t, tc.cpus, tc.environment, tc.recorded...)
			out, err := run(t, "", "verify-node", "trainer-0", "--from", from, "--root", root, "-o", "json")
			if ExitCode(err) != ExitNoAnswer {
				t.Errorf("error %v, want the exit code %d", err, ExitNoAnswer)
			}
			var r nodeverify.Report
			if err := json.Unmarshal([]byte(out), &r); err != nil {
				t.Fatal(err)
			}
			var wrong []string
			for _, c := range r.Containers {
				for _, l := range c.Lines {
					if l.Verdict == nodeverify.Wrong {
						wrong = append(wrong, l.Check)
					}
				}
			}
			if diff := cmp.Diff(tc.wantWrong, wrong); diff != "" || len(r.Containers) != 2 {
				t.Errorf("of %d containers, want 2, wrong (-want,+got)\n%s\n%s", len(r.Containers), diff, out)
			}
		})
	}
}

// TestVerifyNodeContainer looks at the test's own process with the kernel's own proc, as the
// command does in a container.
func TestVerifyNodeContainer(t *testing.T) {
	if _, err := os.Stat("/proc/self/status"); err != nil {
		t.Skip("no /proc here: ", err)
	}
	fakeSMI(t)
	annotations := filepath.Join(t.TempDir(), "annotations")
	_, text, _ := strings.Cut(trainerPod, "nvtopo.dev/allocation: '")
	text, _, _ = strings.Cut(text, "'\n")
	if err := os.WriteFile(annotations, fmt.Appendf(nil, "nvtopo.dev/allocation=%q\n", text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := run(t, "", "verify-node", "--pid", strconv.Itoa(os.Getpid()), "--annotations", annotations, "-o", "json")
	if err != nil && ExitCode(err) != ExitNoAnswer { // memory of this machine may be anywhere
		t.Fatal(err)
	}
	var r nodeverify.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	c := r.Containers[0]
	if diff := cmp.Diff([]string{gpu0, gpu3}, c.GPUs); diff != "" || c.Container != "train" || c.CPUs != "0-19,40-59" {
		t.Errorf("container %q with CPUs %s, GPUs (-want,+got)\n%s", c.Container, c.CPUs, diff)
	}
	for _, l := range c.Lines {
		known := l.Check != "kubelet's record" && l.Check != "pages" // a kernel without NUMA counts no pages
		if known && l.Verdict == nodeverify.Unknown {
			t.Errorf("%s is not known: %s", l.Check, l.Found)
		}
		if l.Check == "visible GPUs" && l.Verdict != nodeverify.OK {
			t.Errorf("%+v, want OK", l)
		}
	}
}

// TestVerifyNodeNoInput: verify-node fails when it can read nothing.
func TestVerifyNodeNoInput(t *testing.T) {
	from := savedPod(t)
	empty := t.TempDir()
	for name, tc := range map[string]struct {
		args []string
		code int
		want string
	}{
		"two pods":                     {[]string{"a", "b"}, ExitUsage, "one pod at most"},
		"a pod and its annotations":    {[]string{"a", "--annotations", "x"}, ExitUsage, "--annotations goes without a pod"},
		"files of no pod":              {[]string{"--from", from}, ExitUsage, "--from needs the name of a pod"},
		"a pod that is not in them":    {[]string{"nobody", "--from", from}, ExitInput, "0 pods have the name nobody"},
		"no process":                   {[]string{"--pid", "0"}, ExitUsage, "--pid 0"},
		"a folder that has no proc":    {[]string{"--root", empty}, ExitInput, "proc"},
		"a node that does not have it": {[]string{"trainer-0", "--from", from, "--root", empty}, ExitInput, "proc"},
		"a form nobody writes":         {[]string{"-o", "text"}, ExitUsage, "--output"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := run(t, "", append([]string{"verify-node"}, tc.args...)...)
			if ExitCode(err) != tc.code || err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("exit code %d, error %v; want %d and %q", ExitCode(err), err, tc.code, tc.want)
			}
		})
	}
}
