// SPDX-License-Identifier: Apache-2.0

package nodeverify

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// proc is a process of a machine that a test makes up.
type proc struct {
	pid, parent int
	cpus, nodes string
	on          []int // CPU of each thread
	maps        string
	env         string
	cgroup      string
}

func rootWith(procs ...proc) fstest.MapFS {
	root := fstest.MapFS{
		"sys/devices/system/cpu/online":      {Data: []byte("0-7\n")},
		"sys/devices/system/node/has_memory": {Data: []byte("0-1\n")},
		"proc/sys/kernel/ostype":             {Data: []byte("Linux\n")},
	}
	for _, p := range procs {
		dir := fmt.Sprintf("proc/%d/", p.pid)
		put := func(name, format string, args ...any) {
			root[dir+name] = &fstest.MapFile{Data: fmt.Appendf(nil, format, args...)}
		}
		put("status", "Name:\tp%d\nCpus_allowed_list:\t%s\nMems_allowed_list:\t%s\n", p.pid, p.cpus, p.nodes)
		put("stat", "%s", statOf(p.pid, p.parent, 0))
		put("numa_maps", "%s", p.maps)
		put("environ", "%s", p.env)
		put("cgroup", "%s", p.cgroup)
		if p.on == nil {
			p.on = []int{0}
		}
		for i, cpu := range p.on {
			put(fmt.Sprintf("task/%d/stat", p.pid+i), "%s", statOf(p.pid+i, p.parent, cpu))
		}
	}
	return root
}

func statOf(pid, parent, cpu int) string {
	return fmt.Sprintf("%d (p) S %d 1 1 0 -1 0 1 0 0 0 1 2 0 0 20 0 3 0 100 1000 200 1 1 1 0 0 0 0 0 1 2 0 0 0 17 %d 0 0 0 0 0\n", pid, parent, cpu)
}

func pidsOf(all []*Process) []int {
	var pids []int
	for _, p := range all {
		pids = append(pids, p.PID)
	}
	return pids
}

func TestReadProcess(t *testing.T) {
	root := rootWith(proc{pid: 42, cpus: "0-3", nodes: "0", on: []int{1, 5}, maps: mapsText, env: environText})
	got, err := ReadProcess(root, 42)
	want := &Process{
		PID: 42, Name: "p42", CPUs: nvtopo.NewCPUSet(0, 1, 2, 3), Nodes: nvtopo.NewCPUSet(0),
		Environment: []string{"PATH=/bin", "NVIDIA_VISIBLE_DEVICES=GPU-a,GPU-b"},
		Pages:       map[int]int64{0: 2*4096 + 2*2<<20, 1: 4096},
		Threads:     []Thread{{42, 1}, {43, 5}},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("error %v (-want,+got)\n%s", err, diff)
	}
	delete(root, "proc/42/environ")
	delete(root, "proc/42/numa_maps")
	got, err = ReadProcess(root, 42)
	if err != nil || got.EnvironmentErr == nil || got.PagesErr == nil {
		t.Errorf("error %v; of environment and pages that are not there %v and %v", err, got.EnvironmentErr, got.PagesErr)
	}
}

func TestReadTree(t *testing.T) {
	root := rootWith(proc{pid: 1}, proc{pid: 9, parent: 1}, proc{pid: 7, parent: 9}, proc{pid: 8}, proc{pid: 10, parent: 7})
	for pid, want := range map[int][]int{1: {1, 7, 9, 10}, 9: {9, 7, 10}, 8: {8}} {
		got, err := ReadTree(root, pid)
		if diff := cmp.Diff(want, pidsOf(got)); diff != "" || err != nil {
			t.Errorf("from %d: error %v; PIDs (-want,+got)\n%s", pid, err, diff)
		}
	}
	if _, err := ReadTree(root, 77); err == nil {
		t.Error("no error for a process that is not there")
	}
}

func TestReadPod(t *testing.T) {
	const uid = "5f0c-11"
	root := rootWith(
		proc{pid: 1, cgroup: "0::/init.scope\n"},
		proc{pid: 20, cgroup: "0::/kubepods/burstable/pod5f0c-11/aaa\n"},
		proc{pid: 22, cgroup: "0::/kubepods/burstable/pod5f0c-11/aaa\n"},
		proc{pid: 21, cgroup: "0::/kubepods/burstable/pod5f0c-11/sandbox\n"},
		proc{pid: 30, cgroup: "5:memory:/x\n0::/kubepods.slice/kubepods-pod5f0c_11.slice/cri-containerd-bbb.scope\n"},
		proc{pid: 31, cgroup: "0::/kubepods/burstable/podother/aaa\n"},
	)
	got, err := ReadPod(root, uid, map[string]string{"aaa": "train", "bbb": "copy", "": "waiting"})
	pids := map[string][]int{}
	for name, all := range got {
		pids[name] = pidsOf(all)
	}
	if diff := cmp.Diff(map[string][]int{"train": {20, 22}, "copy": {30}}, pids); diff != "" || err != nil {
		t.Errorf("error %v; PIDs (-want,+got)\n%s", err, diff)
	}
}

// TestReadOwnProcess reads this very process from the kernel that runs the test.
func TestReadOwnProcess(t *testing.T) {
	root := os.DirFS("/")
	if _, err := os.Stat("/proc/self/status"); err != nil {
		t.Skip("no /proc here: ", err)
	}
	m, err := ReadMachine(root)
	if err != nil {
		t.Fatal(err)
	}
	p, err := ReadProcess(root, os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if len(existing(p.CPUs, m.CPUs)) == 0 || len(existing(p.Nodes, m.Nodes)) == 0 {
		t.Errorf("it may run on CPUs %s of %s with memory of %s of %s", p.CPUs, m.CPUs, p.Nodes, m.Nodes)
	}
	if p.EnvironmentErr != nil || !slices.Contains(p.Environment, "PATH="+os.Getenv("PATH")) {
		t.Errorf("PATH is not in its environment (error %v)", p.EnvironmentErr)
	}
	if _, err := os.Stat("/proc/self/numa_maps"); err == nil {
		bytes := int64(0)
		for _, n := range p.Pages {
			bytes += n
		}
		if p.PagesErr != nil || bytes < 1<<20 {
			t.Errorf("it has %d bytes in %v, a Go program has more than a MiB (error %v)", bytes, p.Pages, p.PagesErr)
		}
	}
	for _, thread := range p.Threads {
		if !m.CPUs.Has(thread.CPU) {
			t.Errorf("thread %d ran on CPU %d, online are %s", thread.TID, thread.CPU, m.CPUs)
		}
	}
	if len(p.Threads) < 2 {
		t.Errorf("threads %v: a Go program has several", p.Threads)
	}
	tree, err := ReadTree(root, os.Getpid())
	if err != nil || len(tree) == 0 || tree[0].PID != os.Getpid() {
		t.Errorf("its tree is %v, error %v", pidsOf(tree), err)
	}
}
