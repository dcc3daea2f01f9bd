// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	kubeletscheme "k8s.io/kubernetes/pkg/kubelet/apis/config/scheme"
	"k8s.io/kubernetes/pkg/kubelet/apis/config/validation"
	"k8s.io/kubernetes/pkg/kubelet/cm/containermap"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/memorymanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/kubeletconfig/util/codec"
	"k8s.io/utils/cpuset"

	"github.com/nvtopo/nvtopo/pkg/cli/generate"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
)

// TestGeneratedConfigurations has kubelet's own code decode, validate and start with the output of
// "nvtopo generate kubelet-config" for every machine of the catalogue.
func TestGeneratedConfigurations(t *testing.T) {
	if os.Getenv("SKIP_NODE") == "1" {
		t.Skip("SKIP_NODE=1")
	}
	for _, name := range machine.Names() {
		for _, policy := range []string{"none", "best-effort", "restricted", "single-numa-node"} {
			t.Run(name+"/"+policy, func(t *testing.T) {
				m := catalogued(t, name)
				startManagers(t, m, generatedConfig(t, name, policy))
			})
		}
	}
}

// catalogued returns a machine of the catalogue as cadvisor would report it, each NUMA node a socket.
func catalogued(t *testing.T, name string) *machineLayout {
	t.Helper()
	entry, err := machine.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	g, err := entry.Graph()
	if err != nil {
		t.Fatal(err)
	}
	m := &machineLayout{nodes: g.NUMANodes}
	for i := range m.nodes {
		m.sockets = append(m.sockets, i)
		if len(m.nodes[i].Distances) == 0 { // the catalogue has none; the kernel always has
			row := make([]int, len(m.nodes))
			for j := range row {
				row[j] = g.NUMADistance(m.nodes[i].ID, m.nodes[j].ID)
			}
			m.nodes[i].Distances = row
		}
	}
	return m
}

// generatedConfig returns the configuration as kubelet reads it from the file, with its defaults.
func generatedConfig(t *testing.T, name, policy string) *kubeletconfig.KubeletConfiguration {
	t.Helper()
	entry, err := machine.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	g, err := entry.Graph()
	if err != nil {
		t.Fatal(err)
	}
	k := generate.Kubelet{
		Policy: policy, Scope: "pod", MemoryManager: generate.MemoryStatic, ReservedCores: 1, ReconcilePeriod: 10 * time.Second,
		KubeReserved: resource.MustParse("4Gi"), SystemReserved: resource.MustParse("1Gi"), EvictionHard: resource.MustParse("100Mi"),
	}
	data, err := k.Write(g)
	if err != nil {
		t.Fatal(err)
	}
	_, codecs, err := kubeletscheme.NewSchemeAndCodecs()
	if err != nil {
		t.Fatal(err)
	}
	c, err := codec.DecodeKubeletConfiguration(t.Context(), codecs, data)
	if err != nil {
		t.Fatalf("%v\n%s", err, data)
	}
	c.FailCgroupV1 = false // depends on the machine that runs the test
	if err := validation.ValidateKubeletConfiguration(c, utilfeature.DefaultFeatureGate); err != nil {
		t.Fatalf("%v\n%s", err, data)
	}
	return c
}

// startManagers starts the managers of kubelet that read this configuration, and checks the memory that
// is left to pods.
func startManagers(t *testing.T, m *machineLayout, c *kubeletconfig.KubeletConfiguration) {
	t.Helper()
	info, log, dir := m.info(), logr.Discard(), t.TempDir()
	topology, err := topologymanager.NewManager(info.Topology, c.TopologyManagerPolicy, c.TopologyManagerScope, c.TopologyManagerPolicyOptions)
	if err != nil {
		t.Fatal(err)
	}
	reservedCPUs, err := cpuset.Parse(c.ReservedSystemCPUs)
	if err != nil {
		t.Fatal(err)
	}
	var memory resource.Quantity
	for _, q := range []string{c.KubeReserved["memory"], c.SystemReserved["memory"], c.EvictionHard["memory.available"]} {
		memory.Add(resource.MustParse(q))
	}
	reserved := v1.ResourceList{v1.ResourceCPU: *resource.NewQuantity(int64(reservedCPUs.Size()), resource.DecimalSI), v1.ResourceMemory: memory}
	cpus, err := cpumanager.NewManager(log, c.CPUManagerPolicy, c.CPUManagerPolicyOptions, c.CPUManagerReconcilePeriod.Duration, info, reservedCPUs, reserved, dir, topology)
	if err != nil {
		t.Fatal(err)
	}
	mems, err := memorymanager.NewManager(log, c.MemoryManagerPolicy, info, reserved, c.ReservedMemory, dir, topology)
	if err != nil {
		t.Fatal(err)
	}
	none := func() []*v1.Pod { return nil }
	if err := cpus.Start(t.Context(), none, ready{}, noStatus{}, nil, containermap.NewContainerMap()); err != nil {
		t.Fatal(err)
	}
	if err := mems.Start(t.Context(), none, ready{}, noStatus{}, nil, containermap.NewContainerMap()); err != nil {
		t.Fatal(err)
	}
	left := int64(0)
	for _, n := range mems.State().GetMachineState() {
		left += int64(n.MemoryMap[v1.ResourceMemory].Allocatable)
	}
	if want := int64(info.MemoryCapacity) - memory.Value(); left != want {
		t.Errorf("the memory manager gives pods %d bytes, want %d", left, want)
	}
	if got, want := cpus.GetAllocatableCPUs().Size(), m.cpus()-reservedCPUs.Size(); got != want {
		t.Errorf("the CPU manager gives pods %d CPUs, want %d", got, want)
	}
}

// TestReservedMemorySum checks that the sum of reservedMemory matters: with 1 Mi less, kubelet does not
// start.
func TestReservedMemorySum(t *testing.T) {
	if os.Getenv("SKIP_NODE") == "1" {
		t.Skip("SKIP_NODE=1")
	}
	m, c := catalogued(t, "dgx-a100"), generatedConfig(t, "dgx-a100", "best-effort")
	topology, err := topologymanager.NewManager(m.info().Topology, c.TopologyManagerPolicy, c.TopologyManagerScope, c.TopologyManagerPolicyOptions)
	if err != nil {
		t.Fatal(err)
	}
	reserved := v1.ResourceList{v1.ResourceMemory: resource.MustParse("5219Mi")}
	_, err = memorymanager.NewManager(logr.Discard(), c.MemoryManagerPolicy, m.info(), reserved, c.ReservedMemory, t.TempDir(), topology)
	if err == nil || !strings.Contains(err.Error(), "not equal") {
		t.Errorf("got %v, want an error about the sum", err)
	}
}
