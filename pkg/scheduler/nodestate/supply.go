// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
)

// Supply is what a node has for pods of a gang that ask for the same: ReserveGang can give each
// of them its set, one after the other. A node whose graph does not count has nothing for pods
// with GPUs. Ports, volumes and what other plugins say are for the caller to know.
func (s *NodeCache) Supply(d *placement.Demand, info fwk.NodeInfo, snapshot fwk.NodeInfoLister, slotter *placement.SlotCounter) fabric.Supply {
	return s.SupplyAfter(d, info, snapshot, slotter, 0, nil, nil)
}

// Placed is a number of pods that ask for the same.
type Placed = placement.Placed

// SupplyAfter is Supply once pods of other demands are placed on the node, too, and have the GPUs used among
// them, by position in the graph of the first resource that d asks for, and once some pods are gone: info is
// a copy without them. gone are these and others whose reservations do not count; it may be nil. Where CPU
// and memory of NUMA nodes matter, nobody knows which of these the others have: a lower bound. With d.Ahead,
// kubelet has released the devices of pods that have just gone.
func (s *NodeCache) SupplyAfter(d *placement.Demand, info fwk.NodeInfo, snapshot fwk.NodeInfoLister, slotter *placement.SlotCounter,
	used nvtopo.Mask, placed []Placed, gone sets.Set[types.UID],
) fabric.Supply {
	node := info.Node()
	x := s.cells.ensure(node.Name)
	room := placement.NewRoom(info.GetAllocatable(), int64(info.GetAllocatable().GetAllowedPodNumber()))
	room.TakeAll(info.GetRequested(), len(info.GetPods()))
	for _, r := range x.reserved.View().Reservations {
		if !gone.Has(r.UID) && !slices.ContainsFunc(info.GetPods(), func(pi fwk.PodInfo) bool { return pi.GetPod().UID == r.UID }) {
			room.Take(r.Request, 1)
		}
	}
	n := s.counting(x, node)
	promised := sync.OnceValue(func() []fwk.PodInfo {
		return slices.DeleteFunc(s.promised(x, d.UID, d.Priority), func(pi fwk.PodInfo) bool { return gone.Has(pi.GetPod().UID) })
	})
	at := &outlook{gone: gone, ahead: d.Ahead}
	return slotter.Supply(d, n, room, s.clock.Now(), used, placed, func(given []usage.Reservation) *usage.Usage {
		return s.usageBeside(x, n, info, snapshot, promised(), given, at)
	})
}

// counting is what is known of a node's GPUs; nil if its graph does not count.
func (s *NodeCache) counting(x *cell, node *v1.Node) *usage.Node {
	n := x.entry.Node()
	if s.topologies.CheckGraph(x.entry, n, node.UID) != placement.Fits {
		return nil
	}
	return n
}

// EmptySupply is what the node would have with nothing on it but the pods of DaemonSets, those of
// stay, with their devices, and members of other demands as in SupplyAfter: what a gang may wait
// for. stay may be nil.
func (s *NodeCache) EmptySupply(d *placement.Demand, info fwk.NodeInfo, slotter *placement.SlotCounter, used nvtopo.Mask, placed []Placed, stay sets.Set[types.UID]) fabric.Supply {
	node := info.Node()
	x := s.cells.ensure(node.Name)
	reserved := x.reserved.View() // before the annotations of those that stay
	room := placement.NewRoom(info.GetAllocatable(), int64(info.GetAllocatable().GetAllowedPodNumber()))
	r := &reader{s: s, reserved: reserved}
	for _, pi := range info.GetPods() {
		owner, stays := metav1.GetControllerOf(pi.GetPod()), stay.Has(pi.GetPod().UID)
		if stays {
			r.here = append(r.here, pi)
		}
		if stays || owner != nil && owner.Kind == "DaemonSet" {
			room.TakeAll(pi.CalculateResource().Resource, 1)
		}
	}
	var others []usage.Reservation
	for _, o := range reserved.Reservations {
		if !stay.Has(o.UID) {
			continue
		}
		others = append(others, o)
		if !slices.ContainsFunc(r.here, func(pi fwk.PodInfo) bool { return pi.GetPod().UID == o.UID }) {
			room.Take(o.Request, 1)
		}
	}
	n := s.counting(x, node)
	emptied := sync.OnceValue(n.Emptied)
	return slotter.Supply(d, n, room, s.clock.Now(), used, placed, func(given []usage.Reservation) *usage.Usage {
		all := slices.Concat(others, given)
		if len(all)+len(r.here) == 0 {
			return n.Empty
		}
		return usage.Compute(&usage.Input{Node: emptied(), Now: s.clock.Now(), Pods: &r.here, Reservations: all, Reader: r})
	})
}
