// SPDX-License-Identifier: Apache-2.0

package generate

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/kubeletadmission"
)

const (
	mib = 1 << 20
	// defaultMaxNodes is the greatest number of NUMA nodes with which kubelet starts, unless its option
	// max-allowable-numa-nodes is greater (k8s.io/kubernetes/pkg/kubelet/cm/topologymanager).
	defaultMaxNodes = 8
	// manyNodes is the number of NUMA nodes from which on it matters that kubelet weighs every combination of
	// the managers' hints: (2^6-1)^3 is a quarter of a million.
	manyNodes = 6
)

// Policies of kubelet's memory manager.
const (
	MemoryStatic = "Static"
	MemoryNone   = "None"
)

// Kubelet holds the settings by which kubelet aligns resources on one machine.
type Kubelet struct {
	Node            string        // name of the node, for the steps; may be empty
	Policy          string        // of the topology manager: none, best-effort, restricted, single-numa-node
	Scope           string        // of the topology manager: container or pod
	MemoryManager   string        // MemoryStatic or MemoryNone
	ReservedCores   int           // cores of each NUMA node that are exclusive to no container
	ReconcilePeriod time.Duration // of the CPU manager
	// Memory for kubelet and the container runtime, for the rest of the system, and the amount that must stay
	// available to avoid evictions. All in bytes.
	KubeReserved, SystemReserved, EvictionHard resource.Quantity
}

// Config returns the part of kubelet's configuration that aligns resources. An error is about
// a field of k, or has ErrNotKnown.
func (k *Kubelet) Config(g *nvtopo.Graph) (*kubeletv1beta1.KubeletConfiguration, error) {
	if err := k.check(); err != nil {
		return nil, err
	}
	nodes := nodesWithCPUs(g)
	if len(nodes) == 0 {
		return nil, fmt.Errorf("%w: which NUMA nodes and CPUs there are; with nvidia-smi text --numactl adds them", ErrNotKnown)
	}
	reserved, err := k.reservedCPUs(g, nodes)
	if err != nil {
		return nil, err
	}
	c := &kubeletv1beta1.KubeletConfiguration{
		TypeMeta:                     metav1.TypeMeta{APIVersion: kubeletv1beta1.SchemeGroupVersion.String(), Kind: "KubeletConfiguration"},
		CPUManagerPolicy:             "static",
		CPUManagerPolicyOptions:      cpuOptions(nodes),
		CPUManagerReconcilePeriod:    metav1.Duration{Duration: k.ReconcilePeriod},
		ReservedSystemCPUs:           reserved.String(),
		TopologyManagerPolicy:        k.Policy,
		TopologyManagerScope:         k.Scope,
		TopologyManagerPolicyOptions: k.topologyOptions(len(g.NUMANodes)),
		MemoryManagerPolicy:          k.MemoryManager,
		KubeReserved:                 amount(k.KubeReserved),
		SystemReserved:               amount(k.SystemReserved),
		// Setting one signal removes the defaults of the others, so all are listed. Those of disks are kubelet's
		// defaults (k8s.io/kubernetes/pkg/kubelet/eviction).
		EvictionHard: map[string]string{
			"memory.available": k.EvictionHard.String(),
			"nodefs.available": "10%", "nodefs.inodesFree": "5%", "imagefs.available": "15%", "imagefs.inodesFree": "5%",
		},
	}
	if k.MemoryManager == MemoryStatic {
		c.ReservedMemory, err = k.reservedMemory(nodes)
	}
	return c, err
}

// Write returns Config as YAML, with the steps that apply it as comments.
func (k *Kubelet) Write(g *nvtopo.Graph) ([]byte, error) {
	c, err := k.Config(g)
	if err != nil {
		return nil, err
	}
	return document(k.comment(c, g), c, "reservedMemory", "reservedSystemCPUs") // node 0 and CPU 0 are no zero values
}

func (k *Kubelet) check() error {
	if _, err := kubeletadmission.ParsePolicy(k.Policy); err != nil || k.Policy == "" {
		return fmt.Errorf("policy %q: want none, best-effort, restricted or single-numa-node", k.Policy)
	}
	total := k.totalMemory()
	switch {
	case k.Scope != "container" && k.Scope != "pod":
		return fmt.Errorf("scope %q: want container or pod", k.Scope)
	case k.MemoryManager != MemoryStatic && k.MemoryManager != MemoryNone:
		return fmt.Errorf("memory manager %q: want %s or %s", k.MemoryManager, MemoryStatic, MemoryNone)
	case k.ReservedCores < 1:
		return fmt.Errorf("%d reserved cores: want 1 or more of each NUMA node", k.ReservedCores)
	case k.ReconcilePeriod <= 0:
		return fmt.Errorf("reconcile period %s: want more than 0", k.ReconcilePeriod)
	case k.KubeReserved.Sign() < 0 || k.SystemReserved.Sign() < 0 || k.EvictionHard.Sign() < 0:
		return fmt.Errorf("reserved memory %s, %s and %s: want 0 or more", &k.KubeReserved, &k.SystemReserved, &k.EvictionHard)
	case total < mib || total%mib != 0:
		return fmt.Errorf("reserved memory is %d bytes in all: want 1Mi or more, in whole Mi", total)
	}
	return nil
}

// totalMemory is the memory that kubelet keeps from pods, in bytes.
func (k *Kubelet) totalMemory() int64 {
	return k.KubeReserved.Value() + k.SystemReserved.Value() + k.EvictionHard.Value()
}

// reservedCPUs takes whole cores of every NUMA node, so that no node is short of CPUs for
// its GPUs and every node's interrupts have one.
func (k *Kubelet) reservedCPUs(g *nvtopo.Graph, nodes []*nvtopo.NUMANode) (nvtopo.CPUSet, error) {
	var out nvtopo.CPUSet
	for _, n := range nodes {
		count := k.ReservedCores * threads(n)
		if count >= len(n.CPUs) {
			return nil, fmt.Errorf("%d reserved cores: NUMA node %d has only the CPUs %s, and some must be left", k.ReservedCores, n.ID, n.CPUs)
		}
		out = out.Union(g.NearestCPUs([]int{n.ID}, n.CPUs, count))
	}
	return out, nil
}

// reservedMemory divides the memory kept from pods in proportion to the memory of the nodes, in Mi.
// Kubelet starts only if the sum is exactly that, and no part may be 0.
func (k *Kubelet) reservedMemory(nodes []*nvtopo.NUMANode) ([]kubeletv1beta1.MemoryReservation, error) {
	weights, all := make([]int64, len(nodes)), int64(0)
	for i, n := range nodes {
		weights[i] = n.Memory / mib
		all += weights[i]
	}
	total := k.totalMemory() / mib
	switch {
	case all == 0: // no node's memory is known
		for i := range weights {
			weights[i], all = 1, all+1
		}
	case total >= all:
		return nil, fmt.Errorf("reserved memory is %d Mi in all: the machine has only %d Mi", total, all)
	}
	var out []kubeletv1beta1.MemoryReservation
	left := total
	for i, n := range nodes {
		part := total * weights[i] / all
		if left -= part; i == len(nodes)-1 {
			part += left
		}
		if part > 0 {
			out = append(out, kubeletv1beta1.MemoryReservation{
				NumaNode: int32(n.ID), Limits: v1.ResourceList{v1.ResourceMemory: *resource.NewQuantity(part*mib, resource.BinarySI)},
			})
		}
	}
	return out, nil
}

func (k *Kubelet) topologyOptions(nodes int) map[string]string {
	options := map[string]string{}
	if nodes > 1 && (k.Policy == "best-effort" || k.Policy == "restricted") {
		options["prefer-closest-numa-nodes"] = "true"
	}
	if nodes > defaultMaxNodes && k.Policy != "none" {
		options["max-allowable-numa-nodes"] = strconv.Itoa(nodes)
	}
	return options
}

func cpuOptions(nodes []*nvtopo.NUMANode) map[string]string {
	options := map[string]string{"strict-cpu-reservation": "true"}
	if slices.ContainsFunc(nodes, func(n *nvtopo.NUMANode) bool { return threads(n) > 1 }) {
		options["full-pcpus-only"] = "true"
	}
	if len(nodes) > 1 {
		options["distribute-cpus-across-numa"] = "true"
	}
	return options
}

// nodesWithCPUs returns the NUMA nodes with CPUs, ascending. A node without CPUs is device memory or slow
// memory, which the system does not use.
func nodesWithCPUs(g *nvtopo.Graph) []*nvtopo.NUMANode {
	var out []*nvtopo.NUMANode
	for i := range g.NUMANodes {
		if n := &g.NUMANodes[i]; len(n.CPUs) > 0 {
			out = append(out, n)
		}
	}
	slices.SortFunc(out, func(a, b *nvtopo.NUMANode) int { return a.ID - b.ID })
	return out
}

// threads is the number of hyper-threads of a core; 1 if it is not known.
func threads(n *nvtopo.NUMANode) int {
	most := 1
	for _, core := range n.Siblings {
		most = max(most, len(core))
	}
	return most
}

func amount(memory resource.Quantity) map[string]string {
	return map[string]string{"memory": memory.String()}
}
