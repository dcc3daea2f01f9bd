// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/kubeletadmission"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// maxNUMA bounds the NUMA nodes that one usage tracks: the width of a node mask.
const maxNUMA = 64

// Usage is the consistent usage of one node. It is immutable.
type Usage struct {
	Node       *Node
	Generation int64  // of the input it was computed from
	Revision   uint64 // of the same

	Used    []nvtopo.Mask // in the order of Node.Accels
	Counted []int         // untracked devices, and those in Withheld; same order
	// Withheld is the number of devices that are free in the graph and not in kubelet's number; nil if
	// Input.Allocatable is.
	Withheld []int
	Foreign  []bool                  // some of those pods run already, so their GPUs are not known
	NUMA     []NUMAFree              // in the order of Node.NUMA.NUMANodes
	Taken    []nvtopo.CPUSet         // CPUs allocated to pods by nvtopo
	Held     *kubeletadmission.State // kubelet's state; nil if there is nothing to predict
	// ToAdmit are pods bound to the node whose kubelet, which may refuse some, has not admitted them yet, and
	// Before is its state until then.
	ToAdmit []*kubeletadmission.Pod
	Before  *kubeletadmission.State
	// FromStore: the allocations of some pods are only in the informer's store, whose content may change
	// without a new generation or revision.
	FromStore bool
	// Unreleased: a pod that is gone still has GPUs in the agent's record, which is used while the agent
	// lives. AgentLived is whether it did.
	Unreleased, AgentLived bool
}

// NUMAFree is the free amount of CPU and memory of one NUMA node.
type NUMAFree struct {
	MilliCPU int64
	Memory   int64 // bytes
}

// FreeAt returns the GPUs of Node.Accels[i] that a pod may be given.
func (u *Usage) FreeAt(i int) nvtopo.Mask { return u.Node.Accels[i].Healthy &^ u.Used[i] }

// Free returns the free healthy GPUs of a resource, by position.
func (u *Usage) Free(resource string) nvtopo.Mask {
	for i, a := range u.Node.Accels {
		if a.Resource == resource {
			return u.FreeAt(i)
		}
	}
	return 0
}

// FreeCPUs returns the CPUs that are not allocated to another pod by nvtopo.
func (u *Usage) FreeCPUs() nvtopo.CPUSet {
	if len(u.Taken) == 0 {
		return u.Node.cpus
	}
	return u.Node.cpus.Minus(u.Taken...)
}

// AccelIndex returns the position in Node.Accels of a resource, -1 if the node has none of it.
func (u *Usage) AccelIndex(resource string) int {
	for i, a := range u.Node.Accels {
		if a.Resource == resource {
			return i
		}
	}
	return -1
}

// Position returns the position in NUMA of a NUMA node's id, -1 if there is none.
func (u *Usage) Position(id int) int {
	for i := range u.NUMA {
		if u.Node.NUMA.NUMANodes[i].ID == id {
			return i
		}
	}
	return -1
}

// AdmissionOf returns the pod in the form of kubelet's managers, its devices in the order of Node.Accels.
// It is nil if the node does not have them all.
func (u *Usage) AdmissionOf(r *podrequest.Request) *kubeletadmission.Pod {
	same := true
	var at [podrequest.MaxResources]int
	for ri := range r.Resources {
		if at[ri] = u.AccelIndex(r.Resources[ri].Name); at[ri] < 0 {
			return nil
		}
		same = same && at[ri] == ri
	}
	if same {
		return r.Admission
	}
	cs := make([]kubeletadmission.Container, len(r.Admission.Containers))
	for i := range cs {
		cs[i] = r.Admission.Containers[i]
		cs[i].Devices = [kubeletadmission.MaxResources]int{}
		for ri := range r.Resources {
			cs[i].Devices[at[ri]] = r.Admission.Containers[i].Devices[ri]
		}
	}
	return kubeletadmission.NewPod(cs)
}

// emptyUsage returns the usage of the node with nothing running on it.
func emptyUsage(n *Node) *Usage {
	u := &Usage{
		Node: n, Used: make([]nvtopo.Mask, len(n.Accels)), Counted: make([]int, len(n.Accels)),
		Foreign: make([]bool, len(n.Accels)), NUMA: n.capacity,
	}
	if n.Kubelet != nil {
		u.hold(n.Kubelet.empty)
	}
	return u
}

// idleUsage returns the usage of the node with only the resources in kubelet's account.
func idleUsage(n *Node) *Usage {
	u := emptyUsage(n)
	if n.Kubelet != nil {
		u.NUMA = n.Kubelet.left(n)
		u.hold(n.Kubelet.account)
	}
	return u
}

// hold sets the node's kubelet state, with the GPUs that are free here.
func (u *Usage) hold(state kubeletadmission.State) {
	for i := range u.Node.Accels {
		state.Free[i] = u.FreeAt(i)
	}
	u.Held = &state
}
