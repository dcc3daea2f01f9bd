// SPDX-License-Identifier: Apache-2.0

package nodeverify

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager/checkpoint"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

const resource = "nvidia.com/gpu"

// twoNodes is a machine with GPUs a, b beside CPUs 0-3 and c, d beside 4-7.
func twoNodes(t *testing.T) *nvtopo.Graph {
	t.Helper()
	gpus := make([]nvtopo.GPU, 4)
	links := map[[2]int]nvtopo.Link{}
	for i := range gpus {
		gpus[i] = nvtopo.GPU{UUID: "GPU-" + string(rune('a'+i)), Index: i, NUMANode: i / 2}
		for j := range i {
			links[[2]int{j, i}] = nvtopo.NewLink(nvtopo.Class{PCIe: nvtopo.PCIeSYS}, nvtopo.PCIeSYS, 4, 0, false)
		}
	}
	g, err := nvtopo.NewGraph(gpus, []nvtopo.NUMANode{{ID: 0, CPUs: nvtopo.NewCPUSet(0, 1, 2, 3)}, {ID: 1, CPUs: nvtopo.NewCPUSet(4, 5, 6, 7)}}, nil, links)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// onNode0 is a container with GPUs a and b that is all beside them.
func onNode0(t *testing.T) *Container {
	t.Helper()
	choice, err := allocation.Parse(`{"version":1,"node":"n","podUID":"u","cpuset":"0-1","containers":[{"name":"train","resource":"nvidia.com/gpu","gpus":["GPU-b","GPU-a"]}]}`)
	if err != nil {
		t.Fatal(err)
	}
	return &Container{
		Name: "train", Machine: Machine{CPUs: nvtopo.NewCPUSet(0, 1, 2, 3, 4, 5, 6, 7), Nodes: nvtopo.NewCPUSet(0, 1)},
		Processes: []*Process{{
			PID: 42, Name: "python", CPUs: nvtopo.NewCPUSet(0, 1), Nodes: nvtopo.NewCPUSet(0),
			Environment: []string{"NVIDIA_VISIBLE_DEVICES=GPU-a,GPU-b"},
			Pages:       map[int]int64{0: 95 << 20, 1: 5 << 20}, Threads: []Thread{{42, 0}, {43, 1}},
		}},
		Choice: choice, Resource: resource, Recorded: []string{"GPU-a", "GPU-b"},
		ListErr: fs.ErrNotExist, Graph: twoNodes(t),
	}
}

// verdicts are the lines that are not OK, and what they found.
func verdicts(r *Result) map[string]string {
	out := map[string]string{}
	for _, l := range r.Lines {
		if l.Verdict != OK {
			out[l.Check] = string(l.Verdict) + ": " + l.Found
		}
	}
	return out
}

func TestExamine(t *testing.T) {
	gone := errors.New("nobody said")
	for name, tc := range map[string]struct {
		change func(c *Container)
		want   map[string]string // check -> verdict and what was found, of the lines that are not OK
	}{
		"all as it should be": {change: func(*Container) {}, want: map[string]string{}},
		"kubelet gave other GPUs, on both NUMA nodes": {
			change: func(c *Container) { c.Recorded = []string{"GPU-b", "GPU-c"} },
			want: map[string]string{
				"kubelet's record": "wrong: GPU-b, GPU-c", "visible GPUs": "wrong: GPU-a, GPU-b by environment NVIDIA_VISIBLE_DEVICES",
			},
		},
		"the pod's own variable asks for all": {
			change: func(c *Container) {
				c.Processes[0].Environment = append(c.Processes[0].Environment, "NVIDIA_VISIBLE_DEVICES=all")
			},
			want: map[string]string{"visible GPUs": "wrong: GPU-a, GPU-b, GPU-c, GPU-d by environment NVIDIA_VISIBLE_DEVICES"},
		},
		"nvidia-smi sees one GPU less": {
			change: func(c *Container) { c.ListErr, c.Listed = nil, []nvtopo.GPU{{UUID: "GPU-b"}} },
			want:   map[string]string{"visible GPUs": "wrong: GPU-b by nvidia-smi -L"},
		},
		"CUDA indices of the machine": {
			change: func(c *Container) {
				c.Processes[0].Environment = append(c.Processes[0].Environment, "CUDA_VISIBLE_DEVICES=1,2")
			},
			want: map[string]string{"CUDA_VISIBLE_DEVICES": `wrong: 1,2: CUDA uses 1 of 2 GPUs, it has no "2"`},
		},
		"CUDA uses one by its UUID": {
			change: func(c *Container) {
				c.Processes[0].Environment = append(c.Processes[0].Environment, "CUDA_VISIBLE_DEVICES=GPU-b")
			},
			want: map[string]string{"CUDA_VISIBLE_DEVICES": "warning: GPU-b: CUDA uses 1 of 2 GPUs"},
		},
		"nothing is pinned": {
			change: func(c *Container) {
				p := c.Processes[0]
				p.CPUs, p.Nodes = nvtopo.NewCPUSet(0, 1, 2, 3, 4, 5, 6, 7, 8, 9), nvtopo.NewCPUSet(0, 1)
				p.Pages, p.Threads = map[int]int64{0: 60 << 20, 1: 40 << 20}, []Thread{{42, 0}, {43, 7}}
			},
			want: map[string]string{
				"chosen CPUs":  "warning: 0-7: 6 of 8 are elsewhere; the node agent pins CPUs only where it is told to",
				"allowed CPUs": "warning: 0-7: 4 of 8 are elsewhere", "memory nodes": "warning: 0-1: 1 of 2 are elsewhere",
				"pages": "warning: 60.0 % there (node 0: 60.0 MiB, node 1: 40.0 MiB)", "threads": "warning: 1 of 2 ran last there",
			},
		},
		"all on the other socket": {
			change: func(c *Container) {
				p := c.Processes[0]
				p.CPUs, p.Nodes = nvtopo.NewCPUSet(4, 5), nvtopo.NewCPUSet(1)
				p.Pages, p.Threads = map[int]int64{1: 40 << 20}, []Thread{{42, 4}}
			},
			want: map[string]string{
				"chosen CPUs": "wrong: 4-5", "allowed CPUs": "wrong: 4-5", "memory nodes": "wrong: 1",
				"pages": "wrong: 0.0 % there (node 1: 40.0 MiB)", "threads": "wrong: 0 of 1 ran last there",
			},
		},
		"a second process on the other socket": {
			change: func(c *Container) {
				c.Processes = append(c.Processes, &Process{
					PID: 50, Name: "loader", CPUs: nvtopo.NewCPUSet(4), Nodes: nvtopo.NewCPUSet(0),
					Pages: map[int]int64{0: 1 << 20}, Threads: []Thread{{50, 4}},
				})
			},
			want: map[string]string{
				"chosen CPUs":  "warning: 0-1,4: 1 of 3 are elsewhere; the node agent pins CPUs only where it is told to",
				"allowed CPUs": "warning: 0-1,4: 1 of 3 are elsewhere", "threads": "warning: 2 of 3 ran last there",
			},
		},
		"inside a container, where neither annotation nor record is": {
			change: func(c *Container) {
				c.Name, c.ChoiceErr, c.RecordErr, c.Recorded = "", gone, gone, nil
			},
			want: map[string]string{
				"kubelet's record": "unknown: nobody said",
				"visible GPUs":     "unknown: it sees GPU-a, GPU-b by environment NVIDIA_VISIBLE_DEVICES; what it was given is not known",
			},
		},
		"inside a container with the annotation only": {
			change: func(c *Container) { c.RecordErr, c.Recorded = gone, nil },
			want:   map[string]string{"kubelet's record": "unknown: nobody said"},
		},
		"threads are bound beside the container's CPUs": {
			change: func(c *Container) {
				c.Processes[0].Environment = append(c.Processes[0].Environment, "GOMP_CPU_AFFINITY=0-3", "OMP_PLACES={4:2}", "KMP_AFFINITY=explicit,proclist=[x]")
			},
			want: map[string]string{
				"GOMP_CPU_AFFINITY": "warning: 0-3: 2 of 4 are elsewhere", "OMP_PLACES": "wrong: 4-5",
				"KMP_AFFINITY": `unknown: "x": want a number up to 32764`,
			},
		},
		"threads are bound, and no CPU is known that the container may use": {
			change: func(c *Container) {
				c.Processes[0].Environment = append(c.Processes[0].Environment, "GOMP_CPU_AFFINITY=0-3")
				c.Processes[0].CPUs = nil
			},
			want: map[string]string{
				"GOMP_CPU_AFFINITY": "unknown: the CPUs that the container may use are not known",
				"allowed CPUs":      "unknown: no process", "chosen CPUs": "unknown: no process",
			},
		},
		"threads are bound to the container's CPUs": {
			change: func(c *Container) {
				c.Processes[0].Environment = append(c.Processes[0].Environment, "GOMP_CPU_AFFINITY=0 1")
			},
			want: map[string]string{},
		},
		"what only root may read": {
			change: func(c *Container) { c.Processes[0].EnvironmentErr, c.Processes[0].PagesErr = gone, gone },
			want: map[string]string{
				"visible GPUs": "unknown: nobody said", "CUDA_VISIBLE_DEVICES": "unknown: the environment is not known", "pages": "unknown: nobody said",
			},
		},
		"a machine whose graph is not known": {
			change: func(c *Container) { c.Graph, c.GraphErr = nil, gone },
			want: map[string]string{
				"allowed CPUs": "unknown: nobody said", "memory nodes": "unknown: nobody said", "pages": "unknown: nobody said", "threads": "unknown: nobody said",
			},
		},
		"a GPU that the graph does not have": {
			change: func(c *Container) { c.Recorded = []string{"GPU-a", "GPU-b", "GPU-x"} },
			want: map[string]string{
				"kubelet's record": "wrong: GPU-a, GPU-b, GPU-x", "visible GPUs": "wrong: GPU-a, GPU-b by environment NVIDIA_VISIBLE_DEVICES",
				"allowed CPUs": "unknown: the graph of the machine has no GPU-x", "memory nodes": "unknown: the graph of the machine has no GPU-x",
				"pages": "unknown: the graph of the machine has no GPU-x", "threads": "unknown: the graph of the machine has no GPU-x",
			},
		},
		"a sidecar without GPUs": {
			change: func(c *Container) {
				c.Name, c.Recorded, c.Processes[0].Environment = "sidecar", nil, nil
			},
			want: map[string]string{
				"visible GPUs": "unknown: environment NVIDIA_VISIBLE_DEVICES names no device; they may come by CDI or mounts",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := onNode0(t)
			tc.change(c)
			r := Examine(c, "")
			if diff := cmp.Diff(tc.want, verdicts(r)); diff != "" {
				t.Errorf("(-want,+got)\n%s", diff)
			}
			report := &Report{Containers: []*Result{r}}
			sum := 0
			for _, v := range []Verdict{OK, Warning, Wrong, Unknown} {
				sum += report.Count(v)
			}
			if sum != len(r.Lines) {
				t.Errorf("%d lines have a verdict, of %d", sum, len(r.Lines))
			}
		})
	}
}

// TestExamineCommands: Examine names the commands.
func TestExamineCommands(t *testing.T) {
	r := Examine(onNode0(t), "kubectl exec POD -- ")
	want := []string{
		"kubectl exec POD -- nvidia-smi -L", "kubectl exec POD -- nvidia-smi topo -m", "taskset -cp 42",
		"kubectl exec POD -- numactl --show", "numastat -p 42", "ps -eLo pid,tid,psr,comm",
	}
	if diff := cmp.Diff(want, r.Commands); diff != "" {
		t.Errorf("(-want,+got)\n%s", diff)
	}
	if !slices.Equal(r.NUMANodes, []int{0}) || r.CPUs != "0-3" || r.By != byRecord {
		t.Errorf("the GPUs are on NUMA nodes %v with CPUs %s, by %s", r.NUMANodes, r.CPUs, r.By)
	}
}

func TestReadRecord(t *testing.T) {
	entries := []checkpoint.PodDevicesEntry{
		{PodUID: "u", ContainerName: "train", ResourceName: resource, DeviceIDs: checkpoint.DevicesPerNUMA{0: {"GPU-b::1", "GPU-b::2"}, 1: {"GPU-a"}}},
		{PodUID: "u", ContainerName: "train", ResourceName: "example.com/nic", DeviceIDs: checkpoint.DevicesPerNUMA{0: {"mlx5_0"}}},
		{PodUID: "other", ContainerName: "train", ResourceName: resource, DeviceIDs: checkpoint.DevicesPerNUMA{0: {"GPU-c"}}},
	}
	data, err := checkpoint.New(entries, map[string][]string{}).MarshalCheckpoint()
	if err != nil {
		t.Fatal(err)
	}
	root := fstest.MapFS{checkpointPath: {Data: data}}
	for uid, want := range map[types.UID]map[string][]string{"u": {"train": {"GPU-a", "GPU-b"}}, "nobody": {}} {
		got, err := ReadRecord(root, uid, resource)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("of pod %s: error %v (-want,+got)\n%s", uid, err, diff)
		}
	}
	root[checkpointPath].Data = data[:len(data)-2]
	if _, err := ReadRecord(root, "u", resource); err == nil || !strings.Contains(err.Error(), checkpointPath) {
		t.Errorf("error %v, want one that names the file", err)
	}
}

// TestReportJSON: the report is JSON.
func TestReportJSON(t *testing.T) {
	r := &Report{Namespace: "team", Pod: "trainer", Containers: []*Result{Examine(onNode0(t), "")}}
	data, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var back Report
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r, &back); diff != "" {
		t.Errorf("written and read again (-want,+got)\n%s", diff)
	}
	if want := fmt.Sprintf(`"container":%q`, "train"); !strings.Contains(string(data), want) {
		t.Errorf("%s is not in %s", want, data)
	}
}
