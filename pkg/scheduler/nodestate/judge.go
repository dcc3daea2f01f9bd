// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"slices"

	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
)

// usable returns the usage of a node whose graph is valid. For another node it returns nil and the reason
// that keeps the pod off it, or Fits.
func (s *NodeCache) usable(d *placement.Demand, info fwk.NodeInfo, snapshot fwk.NodeInfoLister) (*usage.Usage, placement.Reason) {
	u, basis, graph := s.basis(d, info, snapshot)
	if basis == placement.ByGraph {
		return u, placement.Fits
	}
	return nil, placement.Judge(u, d, basis, graph, s.clock.Now())
}

// basis returns the basis on which a pod's fit on a node is decided, and the usage if that basis needs
// it. graph is Fits if the node's graph is valid, else the reason.
func (s *NodeCache) basis(d *placement.Demand, info fwk.NodeInfo, snapshot fwk.NodeInfoLister) (u *usage.Usage, basis placement.Basis, graph placement.Reason) {
	node := info.Node()
	if node == nil {
		return nil, placement.Refused, placement.NoGraph
	}
	x := s.cells.ensure(node.Name)
	n := x.entry.Node()
	graph = s.topologies.CheckGraph(x.entry, n, node.UID)
	switch basis = d.Basis(n, graph); {
	case basis == placement.ByGraph && d.Ahead:
		u = s.computeFor(d, x, n, info.GetGeneration(), info.GetPods(), snapshot)
	case basis == placement.ByGraph:
		if u, _ = s.usageAgain(d, x, n, info.GetGeneration(), info.GetPods(), snapshot); u == nil {
			u = s.usage(x, n, info, snapshot)
		}
	case basis == placement.ByCount:
		u = s.usage(x, n, info, snapshot)
	}
	return u, basis, graph
}

// Judge returns whether a pod fits a node. info may be a dry-run copy of a NodeInfo of the cycle's
// snapshot. It does not allocate memory when the pod fits and the node's usage is remembered, unless this
// pod has a reservation with unknown outcome on the node, or the demand looks ahead: then the usage is
// computed for it.
func (s *NodeCache) Judge(d *placement.Demand, info fwk.NodeInfo, snapshot fwk.NodeInfoLister) placement.Verdict {
	u, basis, graph := s.basis(d, info, snapshot)
	reason := placement.Judge(u, d, basis, graph, s.clock.Now())
	return placement.Verdict{Reason: reason, Never: placement.Never(u, d, basis, reason)}
}

// View returns the usage of a node for scoring, or nil if its graph is not valid.
func (s *NodeCache) View(d *placement.Demand, info fwk.NodeInfo, snapshot fwk.NodeInfoLister) *usage.Usage {
	u, _ := s.usable(d, info, snapshot)
	if u == nil {
		return nil
	}
	return s.withPromised(u, d, info, snapshot)
}

// KubeletBehind reports whether, according to the node's live agent, kubelet has yet to release devices
// of pods that are gone, or to admit pods that were bound. A demand that looks ahead may find room on
// such a node.
func (s *NodeCache) KubeletBehind(d *placement.Demand, info fwk.NodeInfo, snapshot fwk.NodeInfoLister) bool {
	u, _ := s.usable(d, info, snapshot)
	return u != nil && (u.Unreleased && u.AgentLived || len(u.ToAdmit) > 0)
}

// withPromised adds to a node's usage the allocations of nominated pods that a pod of this demand must
// leave free. Filter gets nominated pods from the framework, as pods of the NodeInfo; for Score and
// Reserve they are added here.
func (s *NodeCache) withPromised(u *usage.Usage, d *placement.Demand, info fwk.NodeInfo, snapshot fwk.NodeInfoLister) *usage.Usage {
	x := s.cells.ensure(u.Node.Name)
	promised := s.promised(x, d.UID, d.Priority)
	if len(promised) == 0 {
		return u
	}
	return s.computeFor(d, x, u.Node, info.GetGeneration(), slices.Concat(info.GetPods(), promised), snapshot)
}
