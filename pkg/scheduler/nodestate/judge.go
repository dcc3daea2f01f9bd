// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"slices"

	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
)

// usable returns what is used on a node whose graph counts, or what keeps the pod off one whose graph does
// not: nil and Fits if nothing does.
func (s *NodeCache) usable(d *placement.Demand, info fwk.NodeInfo, snapshot fwk.NodeInfoLister) (*usage.Usage, placement.Reason) {
	u, basis, graph := s.basis(d, info, snapshot)
	if basis == placement.ByGraph {
		return u, placement.Fits
	}
	return nil, placement.Judge(u, d, basis, graph, s.clock.Now())
}

// basis returns what a pod's fit on a node is judged by, with the usage that this needs; graph says whether
// the node's graph counts.
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

// Judge says whether a pod fits a node. info may be a dry-run copy of what the
// cycle's snapshot has. It does not allocate when the pod fits and the node's
// usage is remembered, unless this very pod has a choice in doubt on the node, or the
// demand looks ahead: then the usage is computed for it.
func (s *NodeCache) Judge(d *placement.Demand, info fwk.NodeInfo, snapshot fwk.NodeInfoLister) placement.Verdict {
	u, basis, graph := s.basis(d, info, snapshot)
	reason := placement.Judge(u, d, basis, graph, s.clock.Now())
	return placement.Verdict{Reason: reason, Never: placement.Never(u, d, basis, reason)}
}

// View returns what is used on a node for scoring; nil where its graph does not count.
func (s *NodeCache) View(d *placement.Demand, info fwk.NodeInfo, snapshot fwk.NodeInfoLister) *usage.Usage {
	u, _ := s.usable(d, info, snapshot)
	if u == nil {
		return nil
	}
	return s.withPromised(u, d, info, snapshot)
}

// KubeletBehind reports whether a node's kubelet has yet to release devices of pods that
// are gone, or to admit pods that have come, by its living agent's word: a demand that
// looks ahead may find room there.
func (s *NodeCache) KubeletBehind(d *placement.Demand, info fwk.NodeInfo, snapshot fwk.NodeInfoLister) bool {
	u, _ := s.usable(d, info, snapshot)
	return u != nil && (u.Unreleased && u.AgentLived || len(u.ToAdmit) > 0)
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
