// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"encoding/binary"
	"hash/fnv"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// Accel is one resource's accelerators on one node; immutable.
type Accel struct {
	Resource string
	Graph    *nvtopo.Graph
	Tables   *nvtopo.Tables
	Healthy  nvtopo.Mask
	Degraded nvtopo.Mask // the healthy ones that are given only to pods of one device in all

	// Kind is equal where a request for models or memory accepts the same devices.
	Kind uint64
}

// Record is kubelet's record of a container as the node agent published it.
type Record struct {
	Pod      string // namespace/name, if published
	Resource string
	GPUs     []string
	CPUs     nvtopo.CPUSet // it is confined to, if any
	Foreign  bool          // nvtopo did not choose for it
}

// Node is one node's topology and kubelet's records on it. It is immutable except for the two Leases.
type Node struct {
	Name            string
	NodeUID         types.UID // of the Node the graph was read on
	ResourceVersion string
	Accels          []*Accel
	Resources       []string      // of Accels, in their order
	NUMA            *nvtopo.Graph // the NUMA nodes; may be without GPUs
	ReservedCPUs    nvtopo.CPUSet
	StaticCPUs      bool                   // kubelet's own CPU manager chooses CPUs
	KubeletPolicy   nvtopo.Policy          // PolicyNone unless kubelet aligns strictly
	Kubelet         *Kubelet               // nil if there is nothing to predict
	Settings        string                 // kubelet's settings, for comparison
	Layout          uint64                 // equal for machines with the same NUMA nodes, CPUs and reserved CPUs; set by Complete
	Records         map[types.UID][]Record // pod UID -> kubelet's records
	Exporter, Agent *nodelease.Expiry

	// The object that was read: Spec is the source of the graph, and KubeletStatus that of Kubelet. Partial:
	// the graph is of an earlier version.
	ObjectUID     types.UID
	Created       time.Time
	Partial       bool
	Spec          *v1alpha1.NodeGPUTopologySpec
	KubeletStatus *v1alpha1.Kubelet

	// Empty is the usage with nothing running, Idle with only the resources in kubelet's account. Complete
	// sets both and the fields below.
	Empty, Idle *Usage
	capacity    []NUMAFree
	cpus        nvtopo.CPUSet // that pods may be given
	byCPU       []int16       // CPU -> position of its NUMA node, or -1
}

// Accel returns the node's accelerators of a resource, or nil.
func (n *Node) Accel(resource string) *Accel {
	for _, a := range n.Accels {
		if a.Resource == resource {
			return a
		}
	}
	return nil
}

// Complete computes the fields that depend on the others: call it when these are set.
func (n *Node) Complete() {
	n.capacity, n.cpus, n.byCPU = capacity(n), allCPUs(n).Minus(n.ReservedCPUs), numaByCPU(n.NUMA.NUMANodes)
	n.Layout = layoutOf(n)
	n.Empty, n.Idle = emptyUsage(n), idleUsage(n)
}

// Emptied returns the machine with nothing on it, and a kubelet with nothing allocated.
func (n *Node) Emptied() *Node {
	out := *n
	out.Records = nil
	if n.Kubelet != nil {
		out.Kubelet = n.Kubelet.emptied()
	}
	out.Complete()
	return &out
}

// Healed returns the node with all its GPUs healthy.
func (n *Node) Healed() *Node {
	out := *n
	out.Accels = slices.Clone(n.Accels)
	for i, a := range n.Accels {
		healed := *a
		healed.Healthy |= a.Unhealthy()
		out.Accels[i] = &healed
	}
	out.Complete()
	return &out
}

// Unhealthy returns the devices that no pod is given because they are broken.
func (a *Accel) Unhealthy() (m nvtopo.Mask) {
	for i := range a.Graph.GPUs {
		if a.Graph.GPUs[i].Unhealthy != "" && !a.Graph.GPUs[i].MIG {
			m |= nvtopo.MaskOf(i)
		}
	}
	return m &^ a.Healthy
}

// layoutOf is a hash: a collision of two machines of a cluster is not to be expected.
func layoutOf(n *Node) uint64 {
	var b []byte
	put := func(values ...int) {
		b = binary.AppendVarint(b, int64(len(values)))
		for _, v := range values {
			b = binary.AppendVarint(b, int64(v))
		}
	}
	for i := range n.NUMA.NUMANodes {
		nn := &n.NUMA.NUMANodes[i]
		put(nn.ID, int(nn.Memory))
		put(nn.CPUs...)
		put(nn.Distances...)
		for _, core := range nn.Siblings {
			put(core...)
		}
	}
	put(n.ReservedCPUs...)
	h := fnv.New64a()
	_, _ = h.Write(b) // it never fails
	return h.Sum64()
}

// Enforced reports whether this node's agent is alive; the agent of an earlier node of the name does not
// count, as it knows nothing of this one's kubelet.
func (n *Node) Enforced(now time.Time) bool { return n.Agent.Fresh(now) && n.Agent.Of(n.NodeUID) }

func capacity(n *Node) []NUMAFree {
	nodes := n.NUMA.NUMANodes
	out := make([]NUMAFree, min(len(nodes), maxNUMA))
	for i := range out {
		cpus := nodes[i].CPUs.Minus(n.ReservedCPUs)
		out[i] = NUMAFree{MilliCPU: int64(len(cpus)) * 1000, Memory: nodes[i].Memory}
	}
	return out
}

func allCPUs(n *Node) nvtopo.CPUSet {
	var all []int
	for i := range n.NUMA.NUMANodes {
		all = append(all, n.NUMA.NUMANodes[i].CPUs...)
	}
	return nvtopo.NewCPUSet(all...)
}

// numaByCPU maps each CPU to its NUMA node's position, or -1.
func numaByCPU(nodes []nvtopo.NUMANode) []int16 {
	var out []int16
	for i := range nodes[:min(len(nodes), maxNUMA)] {
		for _, c := range nodes[i].CPUs {
			for c >= len(out) {
				out = append(out, -1)
			}
			out[c] = int16(i)
		}
	}
	return out
}

// numaOf returns the position of a CPU's NUMA node, -1 if it is not known.
func (n *Node) numaOf(cpu int) int {
	if cpu >= len(n.byCPU) {
		return -1
	}
	return int(n.byCPU[cpu])
}
