// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nodelease"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
	"github.com/nvtopo/nvtopo/pkg/release"
)

const (
	gpuResource = v1alpha1.DefaultResource
	namespace   = release.Namespace
)

// cluster is the objects of a simulated cluster. Schedulers read them and change
// none, so all repeats share them.
type cluster struct {
	nodes      []*v1.Node
	topologies []*v1alpha1.NodeGPUTopology
	leases     *coordinationv1.LeaseList
	gpus       int
	served     bool // the API server has the nodes, too: labels are read from there
}

// newCluster makes count nodes that are the given machines in turn.
func newCluster(count int, machines ...*machine.Machine) (*cluster, error) {
	// Nothing renews the Leases: they outlast any run.
	lease := coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: time.Now()}, LeaseDurationSeconds: new(int32)}
	*lease.LeaseDurationSeconds = 24 * 60 * 60
	c := &cluster{leases: &coordinationv1.LeaseList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}}
	for i := range count {
		m := machines[i%len(machines)]
		name := fmt.Sprintf("node-%05d", i)
		g, err := m.GraphFor(name)
		if err != nil {
			return nil, err
		}
		uid := types.UID(name + "-uid")
		t := v1alpha1.FromGraph(name, gpuResource, g)
		t.UID, t.ResourceVersion, t.Spec.NodeUID = types.UID(name+"-topology"), "1", uid
		c.topologies = append(c.topologies, t)
		c.nodes = append(c.nodes, node(name, uid, m, g.Len()))
		c.gpus += g.Len()
		for _, prefix := range []string{nodelease.ExporterPrefix, nodelease.AgentPrefix} {
			c.leases.Items = append(c.leases.Items, coordinationv1.Lease{
				ObjectMeta: metav1.ObjectMeta{Name: prefix + name, Namespace: namespace, UID: types.UID(prefix + name), ResourceVersion: "1"},
				Spec:       lease,
			})
		}
	}
	return c, nil
}

func node(name string, uid types.UID, m *machine.Machine, gpus int) *v1.Node {
	var memory int64
	for _, n := range m.NUMANodes {
		memory += n.MemoryGiB << 30
	}
	capacity := v1.ResourceList{
		gpuResource:       *resource.NewQuantity(int64(gpus), resource.DecimalSI),
		v1.ResourceCPU:    *resource.NewQuantity(int64(m.ThreadsPerCore*m.ThreadStride), resource.DecimalSI),
		v1.ResourceMemory: *resource.NewQuantity(memory, resource.BinarySI),
		v1.ResourcePods:   *resource.NewQuantity(110, resource.DecimalSI),
	}
	return &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid, Labels: map[string]string{v1.LabelHostname: name}},
		Status: v1.NodeStatus{
			Capacity: capacity, Allocatable: capacity,
			Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}},
		},
	}
}

// switched20 is a machine that no catalogue lists, larger than what tables are
// built for: twenty PCIe GPUs, four behind each of five switches, three switches
// on one socket and two on the other.
func switched20() *machine.Machine {
	const perSwitch, onFirstSocket, all = 4, 12, 20
	m := &machine.Machine{
		Name: "switched-20", Description: "20x PCIe GPU behind five switches", Model: "NVIDIA L40S", GPUMemoryMiB: 46068, PCIeGen: 4,
		NUMANodes: []machine.NUMANode{
			{ID: 0, CPUs: "0-47,96-143", MemoryGiB: 512, Distances: []int{10, 21}},
			{ID: 1, CPUs: "48-95,144-191", MemoryGiB: 512, Distances: []int{21, 10}},
		},
		ThreadsPerCore: 2, ThreadStride: 96,
	}
	socket := func(i int) int {
		if i < onFirstSocket {
			return 0
		}
		return 1
	}
	for i := range all {
		m.GPUs = append(m.GPUs, machine.GPU{PCIBusID: fmt.Sprintf("0000:%02x:00.0", 0x10+i), NUMANode: socket(i)})
		row := make([]string, all)
		for j := range row {
			switch {
			case i == j:
				row[j] = "X"
			case i/perSwitch == j/perSwitch:
				row[j] = "PIX"
			case socket(i) == socket(j):
				row[j] = "NODE"
			default:
				row[j] = "SYS"
			}
		}
		m.Links = append(m.Links, strings.Join(row, " "))
	}
	return m
}
