// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/allocation"
	"github.com/nvtopo/nvtopo/pkg/nodestate/candidates"
	"github.com/nvtopo/nvtopo/pkg/nodestate/reservations"
	"github.com/nvtopo/nvtopo/pkg/nodestate/topologies"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/usage"
)

// NodeCache has what is known of each node: its devices, and which of them are used or reserved. It
// judges demands by that, and reserves nothing.
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

// Node returns a node's topology as last read, whether it counts or not; nil if there is none.
func (s *NodeCache) Node(name string) *usage.Node { return s.topologies.Node(name) }

// CheckGraph says whether a node's graph counts now: Fits, or why it does not.
func (s *NodeCache) CheckGraph(node *v1.Node) placement.Reason {
	e := s.topologies.Known(node.Name)
	return s.topologies.CheckGraph(e, e.Node(), node.UID)
}

// Verdict is a node's answer to a demand.
type Verdict struct {
	Reason placement.Reason
	// Never: nothing that could end on this node would make the pod fit.
	Never bool
}

// usable returns what is used on a node whose graph counts, or the reason why
// its graph does not. A nil Usage with Fits means the pod needs no graph there.
func (s *NodeCache) usable(d *placement.Demand, info fwk.NodeInfo, snapshot fwk.NodeInfoLister) (*usage.Usage, placement.Reason) {
	node := info.Node()
	if node == nil {
		return nil, placement.NoGraph
	}
	x := s.cells.ensure(node.Name)
	n := x.entry.Node()
	reason := s.topologies.CheckGraph(x.entry, n, node.UID)
	switch d.Basis(n, reason) {
	case placement.ByGraph:
		if d.Ahead {
			return s.computeFor(d, x, n, info.GetGeneration(), info.GetPods(), snapshot), placement.Fits
		}
		if u := s.usageAgain(d, x, n, info, snapshot); u != nil {
			return u, placement.Fits
		}
		return s.usage(x, n, info, snapshot), placement.Fits
	case placement.ByCount:
		return nil, placement.CheckCount(s.usage(x, n, info, snapshot), d, s.clock.Now())
	case placement.Unchecked:
		return nil, placement.Fits
	default:
		return nil, reason
	}
}

// Judge says whether a pod fits a node. info may be a dry-run copy of what the
// cycle's snapshot has. It does not allocate when the pod fits and the node's
// usage is remembered, unless this very pod has a choice in doubt on the node, or the
// demand looks ahead: then the usage is computed for it.
func (s *NodeCache) Judge(d *placement.Demand, info fwk.NodeInfo, snapshot fwk.NodeInfoLister) Verdict {
	u, reason := s.usable(d, info, snapshot)
	if u == nil {
		return Verdict{Reason: reason, Never: reason != placement.Fits && reason != placement.FewGPUs}
	}
	if reason := placement.CheckEnforcement(d.Request, d.Unenforced, u.Node, s.clock.Now()); reason != placement.Fits {
		return Verdict{Reason: reason, Never: true}
	}
	reason = placement.Check(u, d.Request)
	if reason == placement.Fits {
		return Verdict{}
	}
	return Verdict{Reason: reason, Never: placement.Check(u.Node.Empty, d.Request) != placement.Fits}
}

// View returns what is used on a node for scoring; nil where its graph does not count.
func (s *NodeCache) View(d *placement.Demand, info fwk.NodeInfo, snapshot fwk.NodeInfoLister) *usage.Usage {
	u, _ := s.usable(d, info, snapshot)
	if u == nil {
		return nil
	}
	return s.withPromised(u, d, info, snapshot)
}

// Annotations returns what is written on the pod for an allocation; see placement.Annotations.
func (s *NodeCache) Annotations(a *allocation.Allocation, aliases bool) (map[string]string, error) {
	return placement.Annotations(a, s.Node(a.Node), aliases)
}

// reservedOn returns what is reserved on a node of which nothing may be known.
func (s *NodeCache) reservedOn(node string) *reservations.View {
	if x := s.cells.get(node); x != nil {
		return x.reserved.View()
	}
	return &reservations.View{}
}

// promised lists the pods nominated for a node that have a nominated reservation there which a pod
// of the given priority has to leave alone.
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

// withPromised is the usage of a node with what a pod of this demand has to leave to
// nominated ones. Filter gets those from the framework, as pods of the NodeInfo; for
// Score and Reserve they are added here.
func (s *NodeCache) withPromised(u *usage.Usage, d *placement.Demand, info fwk.NodeInfo, snapshot fwk.NodeInfoLister) *usage.Usage {
	x := s.cells.ensure(u.Node.Name)
	promised := s.promised(x, d.UID, d.Priority)
	if len(promised) == 0 {
		return u
	}
	return s.computeFor(d, x, u.Node, info.GetGeneration(), slices.Concat(info.GetPods(), promised), snapshot)
}

// ReservedBeside returns how much of a resource is reserved on a node for pods that info does not have, but for
// some that are gone, which may be nil.
func (s *NodeCache) ReservedBeside(info fwk.NodeInfo, name v1.ResourceName, gone sets.Set[types.UID]) int64 {
	view := s.reservedOn(info.Node().Name)
	if gone.Len() > 0 {
		view = view.Without(gone.Has)
	}
	return candidates.ReservedBeside(info.GetPods(), view.Reservations, "", name)
}
