// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/candidates"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/reservations"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/topologies"
)

// NodeCache has the known state of each node: its devices, and which of them are used or reserved. It
// checks demands against that, and reserves nothing.
type NodeCache struct {
	clock        clock.PassiveClock
	cells        *cells
	topologies   *topologies.Cache
	reservations *reservations.Table
	podDevices   *PodDevices
	listers      *listers
}

func newNodeCache(clk clock.PassiveClock, graphs *topologies.Cache, table *reservations.Table, pods *PodDevices) *NodeCache {
	s := &NodeCache{clock: clk, topologies: graphs, reservations: table, podDevices: pods, listers: pods.listers}
	s.cells = newCells(s.newCell)
	return s
}

// Node returns a node's topology as last read, valid or not; nil if there is none.
func (s *NodeCache) Node(name string) *usage.Node { return s.topologies.Node(name) }

// CheckGraph returns Fits if a node's graph is valid now, else the reason.
func (s *NodeCache) CheckGraph(node *v1.Node) placement.Reason {
	e := s.topologies.Known(node.Name)
	return s.topologies.CheckGraph(e, e.Node(), node.UID)
}

// Annotations returns the annotations that are written on a pod for an allocation; see
// placement.Annotations.
func (s *NodeCache) Annotations(a *allocation.Allocation, aliases bool) (map[string]string, error) {
	return placement.Annotations(a, s.Node(a.Node), aliases)
}

// reservedOn returns the reservations on a node; the view is empty if the node is unknown.
func (s *NodeCache) reservedOn(node string) *reservations.View {
	if x := s.cells.get(node); x != nil {
		return x.reserved.View()
	}
	return &reservations.View{}
}

// promised lists the pods nominated for a node that have a nominated allocation there which a pod of the
// given priority must leave free.
func (s *NodeCache) promised(x *cell, uid types.UID, priority int32) []fwk.PodInfo {
	if len(x.reserved.View().Nominated) == 0 {
		return nil
	}
	nominated := s.listers.nominated(x.name)
	view := x.reserved.View()
	var out []fwk.PodInfo
	for _, pi := range nominated {
		pod := pi.GetPod()
		if pod.UID != uid && corev1.PodPriority(pod) >= priority && view.NominatedFor(pod.UID) != nil {
			out = append(out, pi)
		}
	}
	return out
}

// ReservedBeside returns how much of a resource is reserved on a node for pods that info does not have.
// gone are pods whose reservations are ignored; it may be nil.
func (s *NodeCache) ReservedBeside(info fwk.NodeInfo, name v1.ResourceName, gone sets.Set[types.UID]) int64 {
	view := s.reservedOn(info.Node().Name)
	if gone.Len() > 0 {
		view = view.Without(gone.Has)
	}
	return candidates.ReservedBeside(info.GetPods(), view.Reservations, "", name)
}
