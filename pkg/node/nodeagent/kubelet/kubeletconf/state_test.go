// SPDX-License-Identifier: Apache-2.0

package kubeletconf

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	cpustate "k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/state"
	memorystate "k8s.io/kubernetes/pkg/kubelet/cm/memorymanager/state"
	"k8s.io/utils/cpuset"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// writeCPUState has kubelet's own code write the state into dir.
func writeCPUState(tb testing.TB, dir, shared string, exclusive map[string]map[string]string) {
	tb.Helper()
	logger, _ := ktesting.NewTestContext(tb)
	s, err := cpustate.NewCheckpointState(logger, dir, cpuStateFile, CPUPolicyStatic, nil)
	if err != nil {
		tb.Fatal(err)
	}
	set := func(list string) cpuset.CPUSet {
		c, err := cpuset.Parse(list)
		if err != nil {
			tb.Fatal(err)
		}
		return c
	}
	s.SetDefaultCPUSet(set(shared))
	for uid, containers := range exclusive {
		for name, list := range containers {
			s.SetCPUSet(uid, name, set(list))
		}
	}
}

// TestCPUState: a CPU state that kubelet wrote is read.
func TestCPUState(t *testing.T) {
	dir := t.TempDir()
	writeCPUState(t, dir, "0-1,8-9", map[string]map[string]string{
		"uid-a": {"init": "2-3", "train": "2-5"}, // an init container's CPUs are reused
		"uid-b": {"serve": "6,7,10"},
	})
	data, err := os.ReadFile(filepath.Join(dir, cpuStateFile))
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseCPUState(data)
	if err != nil {
		t.Fatal(err)
	}
	want := &CPUState{
		Policy: "static", Shared: nvtopo.NewCPUSet(0, 1, 8, 9),
		Exclusive: map[types.UID]map[string]nvtopo.CPUSet{
			"uid-a": {"init": nvtopo.NewCPUSet(2, 3), "train": nvtopo.NewCPUSet(2, 3, 4, 5)},
			"uid-b": {"serve": nvtopo.NewCPUSet(6, 7, 10)},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("state (-want +got):\n%s", diff)
	}
	if all := got.All().String(); all != "2-7,10" {
		t.Errorf("all exclusive CPUs %q, want 2-7,10", all)
	}
}

// TestMemoryState: a memory state that kubelet wrote is read.
func TestMemoryState(t *testing.T) {
	dir := t.TempDir()
	s, err := memorystate.NewCheckpointState(klog.Background(), dir, memoryStateFile, MemoryPolicyStatic)
	if err != nil {
		t.Fatal(err)
	}
	node := func(free uint64, cells ...int) *memorystate.NUMANodeState {
		return &memorystate.NUMANodeState{
			NumberOfAssignments: len(cells) - 1, Cells: cells,
			MemoryMap: map[v1.ResourceName]*memorystate.MemoryTable{
				v1.ResourceMemory: {TotalMemSize: 17 << 30, SystemReserved: 1 << 30, Allocatable: 16 << 30, Reserved: 16<<30 - free, Free: free},
				"hugepages-1Gi":   {TotalMemSize: 1 << 30, Allocatable: 1 << 30, Free: 1 << 30},
			},
		}
	}
	s.SetMachineState(memorystate.NUMANodeMap{1: node(0, 1, 0), 0: node(1<<30, 0, 1), 2: node(16<<30, 2)})
	s.SetMemoryBlocks("uid-a", "train", []memorystate.Block{{NUMAAffinity: []int{0, 1}, Type: v1.ResourceMemory, Size: 31 << 30}})
	data, err := os.ReadFile(filepath.Join(dir, memoryStateFile))
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseMemoryState(data)
	if err != nil {
		t.Fatal(err)
	}
	all := resource.MustParse("16Gi")
	want := &MemoryState{Policy: "Static", Nodes: []v1alpha1.KubeletMemory{
		{NUMANode: 0, Allocatable: all, Free: resource.MustParse("1Gi"), Cells: []int32{0, 1}},
		{NUMANode: 1, Allocatable: all, Free: resource.MustParse("0"), Cells: []int32{0, 1}},
		{NUMANode: 2, Allocatable: all, Free: all},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("state (-want +got):\n%s", diff)
	}
}

// TestStatesOfKubelets: the states that the code of each kubelet wrote are read, those with shares of whole pods
// refused. scripts/kubelet-golden.sh has them written.
func TestStatesOfKubelets(t *testing.T) {
	folders, err := filepath.Glob(filepath.Join("testdata", "1.*"))
	if err != nil || len(folders) < 4 {
		t.Fatalf("%q: %v, want a folder for each of 1.34 to 1.37", folders, err)
	}
	read := func(t *testing.T, dir, name string) []byte {
		t.Helper()
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	for _, dir := range folders {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			cpus, err := ParseCPUState(read(t, dir, cpuStateFile))
			if err != nil {
				t.Fatal(err)
			}
			if cpus.Policy != CPUPolicyStatic || cpus.Shared.String() != "0-1,8-9" || cpus.All().String() != "2-7,10" || len(cpus.Exclusive) != 2 {
				t.Errorf("CPUs %+v", cpus)
			}
			memory, err := ParseMemoryState(read(t, dir, memoryStateFile))
			if err != nil {
				t.Fatal(err)
			}
			var free []string
			for i := range memory.Nodes {
				free = append(free, memory.Nodes[i].Free.String())
			}
			if diff := cmp.Diff([]string{"1Gi", "0", "16Gi"}, free); diff != "" {
				t.Errorf("free memory (-want +got)\n%s", diff)
			}
			pods := filepath.Join(dir, "pods")
			if _, err := os.Stat(pods); err != nil {
				return // this kubelet knows no shares of pods
			}
			_, err = ParseCPUState(read(t, pods, cpuStateFile))
			checkErr(t, err, `podEntries: pod "uid-c" has a share of its own`)
			_, err = ParseMemoryState(read(t, pods, memoryStateFile))
			checkErr(t, err, `podEntries: pod "uid-c" has a share of its own`)
		})
	}
}

// TestUnknownState: a state that is not understood is refused.
func TestUnknownState(t *testing.T) {
	cpu := func(b []byte) error { _, err := ParseCPUState(b); return err }
	memory := func(b []byte) error { _, err := ParseMemoryState(b); return err }
	for name, tc := range map[string]struct {
		parse   func([]byte) error
		data    string
		wantErr string
	}{
		"CPUs held in a field of a newer kubelet": {cpu, `{"policyName":"static","defaultCpuSet":"0","entriesOfPods":{},"checksum":1}`, `unknown field "entriesOfPods"`},
		"such a field in the embedded state":      {cpu, `{"policyName":"static","data":"{\"policyName\":\"static\",\"more\":1}"}`, `data: unknown field "more"`},
		"an embedded state that is none":          {memory, `{"policyName":"Static","data":"{"}`, "data: unexpected end"},
		"the entries of kubelet before 1.18":      {cpu, `{"policyName":"static","defaultCpuSet":"0","entries":{"id":"1"}}`, "cannot unmarshal"},
		"a container without CPUs":                {cpu, `{"policyName":"static","entries":{"u":{"c":""}}}`, "want a pod, a container and CPUs"},
		"a container's list that is none":         {cpu, `{"policyName":"static","entries":{"u":{"c":"a"}}}`, "not a CPU number"},
		"a shared list that is none":              {cpu, `{"policyName":"static","defaultCpuSet":"-1"}`, "defaultCpuSet"},
		"no policy":                               {cpu, `{}`, "policyName is empty"},
		"half a file":                             {cpu, `{"policyName":"st`, "unexpected end"},
		"a NUMA node of no number":                {memory, `{"policyName":"Static","machineState":{"-1":{}}}`, "not within"},
		"a NUMA node without memory":              {memory, `{"policyName":"Static","machineState":{"0":{"memoryMap":{}}}}`, "no entry for memory"},
		"a NUMA node of nothing":                  {memory, `{"policyName":"Static","machineState":{"0":null}}`, "no entry for memory"},
		"more free than there is":                 {memory, `{"policyName":"Static","machineState":{"0":{"memoryMap":{"memory":{"allocatable":1,"free":2}}}}}`, "do not fit"},
		"less than nothing":                       {memory, `{"policyName":"Static","machineState":{"0":{"memoryMap":{"memory":{"allocatable":18446744073709551615}}}}}`, "do not fit"},
		"cells of other nodes":                    {memory, `{"policyName":"Static","machineState":{"0":{"cells":[1],"memoryMap":{"memory":{}}}}}`, "do not name the node itself"},
		"cells given twice":                       {memory, `{"policyName":"Static","machineState":{"0":{"cells":[0,0],"memoryMap":{"memory":{}}}}}`, "repeat"},
		"more cells than are published":           {memory, memoryOfOneGroup(37), "1369 cells in all, at most 1296 are published"},
		"memory without a policy":                 {memory, `{}`, "policyName is empty"},
	} {
		t.Run(name, func(t *testing.T) { checkErr(t, tc.parse([]byte(tc.data)), tc.wantErr) })
	}
}

// FuzzCPUState: what is read can be written in the list format and read again.
func FuzzCPUState(f *testing.F) {
	f.Add([]byte(`{"policyName":"static","defaultCpuSet":"0-1","entries":{"u":{"c":"2-3"}},"checksum":7}`))
	f.Add([]byte(`{"policyName":"none","defaultCpuSet":"","checksum":1353318690}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := ParseCPUState(data)
		if err != nil {
			return
		}
		again, err := nvtopo.ParseCPUList(s.All().String())
		if err != nil || !cmp.Equal(s.All(), again) {
			t.Errorf("%q is read as %v, again as %v: %v", data, s.All(), again, err)
		}
	})
}

// FuzzMemoryState: what is read fits the custom resource.
func FuzzMemoryState(f *testing.F) {
	f.Add([]byte(`{"policyName":"Static","machineState":{"0":{"numberOfAssignments":0,"memoryMap":{"memory":{"total":3,"systemReserved":1,"allocatable":2,"reserved":1,"free":1}},"cells":[0]}},"checksum":7}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := ParseMemoryState(data)
		if err != nil {
			return
		}
		for i, n := range s.Nodes {
			if n.NUMANode < 0 || n.Free.Sign() < 0 || n.Free.Cmp(n.Allocatable) > 0 || i > 0 && s.Nodes[i-1].NUMANode >= n.NUMANode {
				t.Errorf("%q is read as %+v", data, s.Nodes)
			}
		}
	})
}

// memoryOfOneGroup is the state of n NUMA nodes that a pod spans.
func memoryOfOneGroup(n int) string {
	cells, nodes := make([]string, n), make([]string, n)
	for i := range cells {
		cells[i] = strconv.Itoa(i)
	}
	for i := range nodes {
		nodes[i] = fmt.Sprintf(`"%d":{"cells":[%s],"memoryMap":{"memory":{}}}`, i, strings.Join(cells, ","))
	}
	return `{"policyName":"Static","machineState":{` + strings.Join(nodes, ",") + `}}`
}
