// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"slices"

	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/usage"
)

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
