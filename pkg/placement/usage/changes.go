// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/kubeletadmission"
)

// Roomier reports whether a node's new topology may let in a pod that the old one kept out. The most
// frequent writes of agents do not: kubelet recorded one more pod. Waking every waiting pod for those
// would cost more than scheduling it.
func (n *Node) Roomier(old *Node) bool {
	return n.NodeUID != old.NodeUID || n.rebuilt(old) || n.released(old) || n.met(old) || n.unpinned(old)
}

// rebuilt reports whether the machine changed: its devices or NUMA nodes, or a device is healthy again, or
// no longer degraded.
func (n *Node) rebuilt(old *Node) bool {
	sameAccel := func(a, b *Accel) bool {
		return a.Resource == b.Resource && a.Tables.Class() == b.Tables.Class() && a.Kind == b.Kind && a.Healthy&^b.Healthy == 0 &&
			a.Healthy&^a.Degraded&^(b.Healthy&^b.Degraded) == 0
	}
	sameNUMA := func(a, b nvtopo.NUMANode) bool {
		return a.ID == b.ID && a.Memory == b.Memory && slices.Equal(a.CPUs, b.CPUs)
	}
	return !slices.EqualFunc(n.Accels, old.Accels, sameAccel) || !slices.EqualFunc(n.NUMA.NUMANodes, old.NUMA.NUMANodes, sameNUMA)
}

// released reports whether kubelet no longer records a device for some pod.
func (n *Node) released(old *Node) bool {
	for uid, recs := range old.Records {
		for _, r := range recs {
			for _, id := range r.GPUs {
				if !n.recordsGPU(uid, r.Resource, id) {
					return true
				}
			}
		}
	}
	return false
}

// met reports whether the GPUs of a pod of another scheduler have become known: pods that need known GPUs
// may use the others now. Where kubelet may refuse pods, its admission of one also ends the wait of those
// that must not come before it.
func (n *Node) met(old *Node) bool {
	strict := n.Kubelet != nil && n.Kubelet.mayRefuse()
	for uid, recs := range n.Records {
		_, known := old.Records[uid]
		if !known && (strict || slices.ContainsFunc(recs, func(r Record) bool { return r.Foreign })) {
			return true
		}
	}
	return false
}

func (n *Node) recordsGPU(uid types.UID, resource, id string) bool {
	return slices.ContainsFunc(n.Records[uid], func(r Record) bool {
		return r.Resource == resource && slices.Contains(r.GPUs, id)
	})
}

// unpinned reports whether kubelet has other settings than before, or has taken back exclusive CPUs or
// memory.
func (n *Node) unpinned(old *Node) bool {
	if n.Settings != old.Settings || !slices.Equal(n.ReservedCPUs, old.ReservedCPUs) {
		return true
	}
	a, b := n.Kubelet, old.Kubelet
	if a == nil || b == nil {
		return a != b
	}
	more := func(now, before kubeletadmission.Memory) bool {
		return now.Free > before.Free || len(now.Cells) != len(before.Cells)
	}
	for id, before := range b.memory {
		if now, ok := a.memory[id]; !ok || more(now, before) {
			return true
		}
	}
	return len(b.exclusive.Minus(a.exclusive)) > 0 || !maps.EqualFunc(a.memory, b.memory, func(x, y kubeletadmission.Memory) bool {
		return x.Allocatable == y.Allocatable
	})
}

// Freer reports whether a resource is free that was not, of the same topology.
func (u *Usage) Freer(old *Usage) bool {
	for i := range u.Used {
		if old.Used[i]&^u.Used[i] != 0 || u.Counted[i] < old.Counted[i] || old.Foreign[i] && !u.Foreign[i] {
			return true
		}
	}
	for i := range u.NUMA {
		if u.NUMA[i].MilliCPU > old.NUMA[i].MilliCPU || u.NUMA[i].Memory > old.NUMA[i].Memory {
			return true
		}
	}
	return len(u.ToAdmit) < len(old.ToAdmit) || u.AgentLived != old.AgentLived
}
