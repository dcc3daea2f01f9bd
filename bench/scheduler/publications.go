// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/bench/internal/fleet"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// place selects the due publication of a hostile node, and the victim whose GPUs it may
// claim.
type place struct{ node, victim, step int }

// publication is one kind of hostile object.
type publication struct {
	name  string
	spoil func(*v1alpha1.NodeGPUTopology, place) error
}

// publications are the kinds that hostile nodes publish, in turn.
var publications = []publication{
	{"the greatest object", greatest},
	{"a graph of 16 GPUs, its links at random", func(t *v1alpha1.NodeGPUTopology, p place) error {
		noise(t, 16, p) // whose tables are the most expensive, a new one each time
		return nil
	}},
	{"unreadable and flapping", unreadable},
	{"GPUs of another node", stolen},
}

// object returns the kind's next object.
func (k *publication) object(p place) (*v1alpha1.NodeGPUTopology, error) {
	t, err := honestTopology(p.node)
	if err != nil {
		return nil, err
	}
	return t, k.spoil(t, p)
}

// honestTopology returns a node's original topology, without the Node's own ids.
func honestTopology(node int) (*v1alpha1.NodeGPUTopology, error) {
	kinds, err := fleet.Kinds()
	if err != nil {
		return nil, err
	}
	o, err := fleet.Make(node, kinds[node%len(kinds)], &fleet.Options{})
	if err != nil {
		return nil, err
	}
	return o.Topology, nil
}

// unreadable makes a graph that cannot be read, every other time, and health that flaps.
func unreadable(t *v1alpha1.NodeGPUTopology, p place) error {
	if p.step%2 == 1 {
		t.Spec.LinkKinds[p.step%len(t.Spec.LinkKinds)].Bandwidth = resource.MustParse("1")
	}
	t.Status.GPUHealth = []v1alpha1.GPUHealth{{ID: t.Spec.GPUs[0].ID, Healthy: p.step%3 == 0, Reason: "none of your business"}}
	return nil
}

// stolen makes a graph of the GPUs of an honest node.
func stolen(t *v1alpha1.NodeGPUTopology, p place) error {
	victim, err := honestTopology(p.victim)
	if err != nil {
		return err
	}
	for i := range t.Spec.GPUs {
		t.Spec.GPUs[i].ID = victim.Spec.GPUs[i].ID
	}
	t.Status.GPUHealth = []v1alpha1.GPUHealth{{ID: t.Spec.GPUs[p.step%8].ID}}
	return nil
}

// noise makes a machine of n GPUs with random links, of the greatest number of kinds.
func noise(t *v1alpha1.NodeGPUTopology, n int, p place) {
	r := rand.New(rand.NewPCG(uint64(p.node), uint64(p.step)))
	s, first := &t.Spec, t.Spec.GPUs[0]
	s.GPUs, s.LinkKinds, s.LinkRows, s.NICs = nil, nil, nil, nil
	for i := range v1alpha1.MaxLinkKinds {
		s.LinkKinds = append(s.LinkKinds, v1alpha1.LinkKind{
			Name: fmt.Sprintf("NVLink/NODE.%04d", i), Class: "NVLink", Lanes: int32(1 + r.IntN(64)),
			Bandwidth: *resource.NewQuantity(1000+r.Int64N(1_000_000_000_000), resource.DecimalSI), LatencyNanoseconds: 1 + r.Int64N(1000),
			PCIe: "NODE", Switched: true,
		})
	}
	for i := range n {
		g := first
		g.ID, g.Index, g.NUMANode = fmt.Sprintf("GPU-%s-%d", t.Name, i), int32(i), int32(-1)
		g.PCIBusID = ""
		s.GPUs = append(s.GPUs, g)
	}
	for i := range n - 1 {
		row := make([]string, 0, n)
		for range s.GPUs[i+1:] {
			row = append(row, s.LinkKinds[r.IntN(len(s.LinkKinds))].Name)
		}
		s.LinkRows = append(s.LinkRows, strings.Join(row, " "))
	}
}

// greatest makes an object with all lists at their greatest length: 64 GPUs, and a record
// of pods of all namespaces.
func greatest(t *v1alpha1.NodeGPUTopology, p place) error {
	noise(t, nvtopo.MaxGPUs, p)
	memory, id := resource.MustParse("1099511627777"), p.step%1000
	t.Spec.NUMANodes, t.Status.Kubelet = nil, &v1alpha1.Kubelet{TopologyManagerPolicy: "restricted"}
	for i := range v1alpha1.MaxDistances {
		node := v1alpha1.NUMANode{ID: int32(i), Memory: &memory, CPUs: cpuList(i)}
		for j := range v1alpha1.MaxSiblings / v1alpha1.MaxDistances {
			node.Siblings = append(node.Siblings, fmt.Sprintf("%d,%d", 2000+i*14+j, 4000+i*14+j))
		}
		cells := make([]int32, v1alpha1.MaxDistances)
		for j := range cells {
			cells[j] = int32(j)
			node.Distances = append(node.Distances, int32(10+(i+j+id)%200))
		}
		t.Spec.NUMANodes = append(t.Spec.NUMANodes, node)
		t.Status.Kubelet.Memory = append(t.Status.Kubelet.Memory, v1alpha1.KubeletMemory{NUMANode: int32(i), Allocatable: memory, Free: memory, Cells: cells})
	}
	for i := range v1alpha1.MaxNICDistances / nvtopo.MaxGPUs {
		nic := v1alpha1.NIC{Name: fmt.Sprintf("mlx5_%d", i)}
		for range nvtopo.MaxGPUs {
			nic.Distances = append(nic.Distances, "NODE")
		}
		t.Spec.NICs = append(t.Spec.NICs, nic)
	}
	t.Status.GPUHealth = nil
	for i := range t.Spec.GPUs {
		g := &t.Spec.GPUs[i]
		g.PCIBusID, g.CPUs, g.MIG = fmt.Sprintf("0000:%02x:00.0", i), cpuList(i), true
		t.Status.GPUHealth = append(t.Status.GPUHealth, v1alpha1.GPUHealth{ID: g.ID, Reason: strings.Repeat("x", 256), Since: &metav1.Time{Time: time.Unix(int64(id), 0)}})
	}
	for i := range v1alpha1.MaxAllocations {
		a := v1alpha1.Allocation{
			PodUID: types.UID(fmt.Sprintf("%08x-0000-4000-8000-%012x", i, p.step)), Namespace: metav1.NamespaceDefault, Pod: podName(i),
			Container: "main", Resource: v1alpha1.DefaultResource, CPUs: cpuList(i)[:v1alpha1.MaxAllocatedCPUs/v1alpha1.MaxAllocations-2], State: v1alpha1.StateReassigned,
		}
		for j := range v1alpha1.MaxAllocatedGPUs / v1alpha1.MaxAllocations {
			a.GPUs = append(a.GPUs, t.Spec.GPUs[(i+j)%nvtopo.MaxGPUs].ID)
		}
		t.Status.Allocations = append(t.Status.Allocations, a)
	}
	return nil
}

// cpuList returns a list of the schema's greatest length, of alternately numbered CPUs.
func cpuList(first int) string {
	var b strings.Builder
	for cpu := 1000 + first; b.Len() < 1015; cpu += 2 {
		fmt.Fprintf(&b, "%d,", cpu)
	}
	return b.String() + "9999"
}
