// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster/realnode/gpunode"
	"github.com/nvtopo/nvtopo/pkg/cli/generate"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// TestGeneratedKubeletConfig starts the real kubelet with the output of "nvtopo generate kubelet-config"
// for this machine. Pods stay off the reserved CPUs, and a Guaranteed one gets CPUs and memory of its
// own.
func TestGeneratedKubeletConfig(t *testing.T) {
	g := thisMachine(t)
	k := generate.Kubelet{
		Policy: "best-effort", Scope: "pod", MemoryManager: generate.MemoryStatic, ReservedCores: 1, ReconcilePeriod: 10 * time.Second,
		KubeReserved: resource.MustParse("512Mi"), SystemReserved: resource.MustParse("512Mi"), EvictionHard: resource.MustParse("100Mi"),
	}
	data, err := k.Write(g)
	if err != nil {
		t.Fatalf("this machine: %v", err)
	}
	t.Logf("%s", data)
	var fields map[string]any
	if err := yaml.UnmarshalStrict(data, &fields); err != nil {
		t.Fatal(err)
	}
	hard, ok := fields["evictionHard"].(map[string]any)
	if !ok {
		t.Fatalf("no evictionHard in\n%s", data)
	}
	for signal := range hard {
		if signal != "memory.available" {
			hard[signal] = "0%" // independent of the machine's disk usage
		}
	}
	reserved, err := nvtopo.ParseCPUList(fmt.Sprint(fields["reservedSystemCPUs"]))
	if err != nil {
		t.Fatal(err)
	}
	var all nvtopo.CPUSet
	for i := range g.NUMANodes {
		all = all.Union(g.NUMANodes[i].CPUs)
	}
	free := all.Minus(reserved)

	l := startBeside(t, gpunode.Config{Kubelet: fields})
	l.create(t, gpunode.Pod("shared", 1))
	for _, o := range l.observe(t, l.running(t, "shared")) {
		if o.Report.CPUs != free.String() {
			t.Errorf("a pod without CPUs of its own runs on %s, want %s: all but the reserved %s", o.Report.CPUs, free, reserved)
		}
	}
	threads := 1
	for _, core := range g.NUMANodes[0].Siblings {
		threads = max(threads, len(core))
	}
	l.create(t, gpunode.Pod("own", 1, func(p *v1.Pod) {
		limits := p.Spec.Containers[0].Resources.Limits
		limits[v1.ResourceCPU], limits[v1.ResourceMemory] = *resource.NewQuantity(int64(threads), resource.DecimalSI), resource.MustParse("64Mi")
	}))
	for _, o := range l.observe(t, l.running(t, "own")) {
		got, err := nvtopo.ParseCPUList(o.Report.CPUs)
		if err != nil || len(got) != threads || len(got.Minus(free)) > 0 {
			t.Errorf("a Guaranteed pod of %d CPUs runs on %s (%v), want them of %s", threads, o.Report.CPUs, err, free)
		}
	}
}

// thisMachine returns a graph without GPUs of the machine that runs the test, read from the kernel.
func thisMachine(t *testing.T) *nvtopo.Graph {
	t.Helper()
	folders, err := filepath.Glob("/sys/devices/system/node/node[0-9]*")
	if err != nil || len(folders) == 0 {
		t.Fatalf("no NUMA nodes in /sys: %v", err)
	}
	var nodes []nvtopo.NUMANode
	for _, folder := range folders {
		id, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(folder), "node"))
		if err != nil {
			t.Fatal(err)
		}
		n := nvtopo.NUMANode{ID: id, CPUs: cpuFile(t, filepath.Join(folder, "cpulist"))}
		for _, cpu := range n.CPUs {
			core := cpuFile(t, fmt.Sprintf("/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu))
			if core[0] == cpu {
				n.Siblings = append(n.Siblings, core)
			}
		}
		for line := range bytes.Lines(read(t, filepath.Join(folder, "meminfo"))) {
			if f := bytes.Fields(line); len(f) == 5 && string(f[2]) == "MemTotal:" {
				kib, err := strconv.ParseInt(string(f[3]), 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				n.Memory = kib << 10
			}
		}
		nodes = append(nodes, n)
	}
	g, err := nvtopo.NewGraph(nil, nodes, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func cpuFile(t *testing.T, path string) nvtopo.CPUSet {
	t.Helper()
	cpus, err := nvtopo.ParseCPUList(string(read(t, path)))
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return cpus
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
