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

// Supply returns the free capacity of a node for the pods of a gang that have equal requests: ReserveGang
// can give each of them its set, one after the other. A node without a valid graph has none for pods with
// GPUs. Ports, volumes and the filters of other plugins are the caller's concern.
func (s *NodeCache) Supply(d *placement.Demand, info fwk.NodeInfo, snapshot fwk.NodeInfoLister, slotter *placement.SlotCounter) fabric.Supply {
	return s.SupplyAfter(d, info, snapshot, slotter, 0, nil, nil)
}

// Placed is a number of pods with equal requests.
type Placed = placement.Placed

// SupplyAfter is Supply after pods of other demands are placed on the node as well, and after some pods
// have ended. used are the GPUs of those others, by position in the graph of the first resource that d
// requests. info is a copy of the node without the ended pods. gone are these pods and others whose
// reservations are ignored; it may be nil. Where CPU and memory of NUMA nodes matter, those of the others
// are unknown, so the result is a lower bound. With d.Ahead, kubelet is assumed to have released the
// devices of pods that have just ended.
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

// counting returns the topology of a node, or nil if its graph is not valid.
func (s *NodeCache) counting(x *cell, node *v1.Node) *usage.Node {
	n := x.entry.Node()
	if s.topologies.CheckGraph(x.entry, n, node.UID) != placement.Fits {
		return nil
	}
	return n
}

// EmptySupply returns the free capacity that a gang may wait for: the node with only the pods of
// DaemonSets, those of stay, with their devices, and members of other demands as in SupplyAfter. stay may
// be nil.
func (s *NodeCache) EmptySupply(d *placement.Demand, info fwk.NodeInfo, slotter *placement.SlotCounter, used nvtopo.Mask, placed []Placed, stay sets.Set[types.UID]) fabric.Supply {
	node := info.Node()
	x := s.cells.ensure(node.Name)
	reserved := x.reserved.View() // read before the annotations of those that stay
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
