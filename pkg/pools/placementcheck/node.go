// SPDX-License-Identifier: Apache-2.0

package placementcheck

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
)

// node is one node of a Snapshot. Copies share all parts that are never changed in place.
type node struct {
	object *v1.Node
	ready  bool
	graph  *usage.Node // nil: no valid one
	// listed are the live pods on the node, and here those of them that are counted.
	listed, here usage.LivePods
	given        []usage.Reservation // promised; the allocation is nil for pods without GPUs

	used *usage.Usage // of graph, here and given; nil until first needed
}

// room returns the free amounts of all resources that the scheduler counts.
func (n *node) room() placement.Room {
	allocatable := usage.AmountsOf(n.object.Status.Allocatable)
	room := placement.NewRoom(&allocatable, allocatable.Pods())
	for i := range n.here {
		room.TakeAll(n.here[i].Amounts(), 1)
	}
	for i := range n.given {
		room.Take(n.given[i].Request, 1)
	}
	return room
}

// usageBeside returns the usage of the node's devices, with the reservations more added.
func (n *node) usageBeside(now time.Time, more []usage.Reservation) *usage.Usage {
	if len(more) == 0 && n.used != nil {
		return n.used
	}
	in := usage.Input{Node: n.graph, Now: now, Pods: n.here, Listed: n.listed, Reader: usage.AnnotationReader{}}
	for _, r := range slices.Concat(n.given, more) {
		if r.Allocation != nil {
			in.Reservations = append(in.Reservations, r)
		}
	}
	u := usage.Compute(&in)
	if len(more) == 0 {
		n.used = u
	}
	return u
}

// supply returns the node's free capacity for pods of a kind, once the pods in placed are there too and
// the GPUs in used are taken. It is as the scheduler's own (nodestate's Supply), limited to this
// process's knowledge.
func (n *node) supply(s *Snapshot, k *kind, used nvtopo.Mask, placed []placement.Placed) fabric.Supply {
	if !n.ready || !k.shape.Eligible.Allows(n.object) {
		return fabric.Supply{}
	}
	return k.shape.Bounded(s.graphs.slotter.Supply(k.demand, n.graph, n.room(), s.now, used, placed, func(given []usage.Reservation) *usage.Usage {
		return n.usageBeside(s.now, given)
	}), n.object)
}

// takes reports whether the node can take one pod of a kind, and the GPUs that the pod would get.
func (n *node) takes(s *Snapshot, k *kind) (*allocation.Allocation, bool) {
	if !n.ready || !k.shape.Eligible.Allows(n.object) {
		return nil, false
	}
	room := n.room()
	if room.Holds(k.demand.Request) == 0 {
		return nil, false
	}
	if !k.demand.Placed() {
		return nil, true
	}
	var u *usage.Usage
	graph := placement.NoGraph
	if n.graph != nil {
		graph, u = placement.Fits, n.usageBeside(s.now, nil)
	}
	basis := k.demand.Basis(n.graph, graph)
	if reason := placement.Judge(u, k.demand, basis, graph, s.now); reason != placement.Fits || basis == placement.Unchecked {
		return nil, reason == placement.Fits
	}
	a, reason := placement.Choose(u, k.demand.Request, false)
	return a, reason == placement.Fits
}

// free returns the number of free GPUs, of all resources.
func (n *node) free(now time.Time) (free int) {
	if n.graph == nil {
		return 0
	}
	u := n.usageBeside(now, nil)
	for i := range n.graph.Accels {
		free += u.FreeAt(i).Len() - u.Counted[i]
	}
	return free
}

// give records the promise to a pod. The receiver must be an unshared copy; see Snapshot.own.
func (n *node) give(uid types.UID, k *kind, a *allocation.Allocation) {
	n.given = append(slices.Clip(n.given), usage.Reservation{UID: uid, Allocation: a, Request: k.demand.Request})
	n.used = nil
}
