// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/nodestate/candidates"
	"github.com/nvtopo/nvtopo/pkg/nodestate/fabricview"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/nodeindex"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/podrequest"
)

// newIndex returns the index of the nodes that have cells.
func newIndex(clk clock.PassiveClock, cells *cells, views *fabricview.Views, stride int) *candidates.Index {
	return candidates.NewIndex(clk, func(name string) *candidates.Node { return &cells.ensure(name).candidate },
		func() *fabric.Tree { return views.Current().Tree }, stride)
}

// Fabric is where nodes are now. Nodes have other numbers in the next view.
func (s *State) Fabric() *fabricview.View { return s.fabric.Current() }

// OnFabricChange has fn called after each change of the fabric. It must not block.
func (s *State) OnFabricChange(fn func()) { s.fabric.OnChange(fn) }

// Spares says by node what its part of the fabric has of whole machines with that resource, which
// decides between nodes that are equal otherwise: the least is best, and 0 is that of a node which
// is left out. It is for PreScore: Score, which is asked about each node, must not wait for a lock.
func (s *State) Spares(resource string, nodes []fwk.NodeInfo) map[string]nodeindex.Spare {
	if !s.fabric.Current().HasLevels() {
		return nil
	}
	return s.index.Spares(resource, nodes)
}

// Reserved are the machines that are left to larger pods than the one that makes the demand, by what
// ran on them at the last cycle's beginning. It is for PreScore, as Spares is.
func (s *State) Reserved(d *placement.Demand, order *nodeindex.Order) nodeindex.Reserved {
	r := &d.Resources[0]
	return s.index.Reserved(r.Name, r.Count, order)
}

// Candidates lists the nodes that the pod does best on, or nil where the list would be empty
// or the pod is not to be narrowed: it is nominated, names its node, or is tried on all
// nodes. Nodes with GPUs were rated by best. See candidates.Index.List.
func (s *State) Candidates(d *placement.Demand, pod *v1.Pod, how *candidates.Narrowing, h fwk.Handle, nodes []fwk.NodeInfo) (names sets.Set[string], best nodeindex.Best) {
	q := candidates.Query{
		Pod: pod, Request: d.Request, Unenforced: d.Unenforced, Narrowing: how,
		Nodes: nodes, Snapshot: h.SnapshotSharedLister().NodeInfos(), Queue: h, Closed: &s.closed,
	}
	if !s.index.Refresh(&q) || s.BeginRetry(pod.UID) {
		return nil, nodeindex.Best{}
	}
	q.Again = s.mayTakeAgain(d, q.Snapshot)
	if s.refusals.Any() {
		q.Refuses = s.refusals.Refuses
	}
	return s.index.List(&q)
}

// HasBoth reports whether some nodes of the last cycle had accelerators and some
// had none.
func (s *State) HasBoth() bool { return s.index.HasBoth() }

// TakesWholeNodes reports whether the pod takes all devices of any node it could be
// placed on, so that no other place on the node is left to be rated.
func (s *State) TakesWholeNodes(r *podrequest.Request) bool { return s.index.TakesWholeNodes(r) }

// RetryOnAllNodes makes the pod's next cycle look at all nodes and sees that it comes at
// once. The activation now counts if anything delays the pod's way back to the queue.
func (s *State) RetryOnAllNodes(logger klog.Logger, pod *v1.Pod, h fwk.Handle) {
	s.retries.Add(pod)
	h.Activate(logger, map[string]*v1.Pod{pod.Namespace + "/" + pod.Name: pod})
}

// BeginRetry reports whether the pod's cycle, which begins now, is to look at all nodes. Candidates
// asks this itself; whoever else limits a pod's cycle asks here. If nobody does, the pod is activated
// while that cycle is under way, and comes again without a pause.
func (s *State) BeginRetry(uid types.UID) bool { return s.retries.Begin(uid) }

// EndRetry lets the pod get a list again.
func (s *State) EndRetry(uid types.UID) { s.retries.Remove(uid) }

// RetriesOnAllNodes reports whether the pod's next cycle looks at all nodes.
func (s *State) RetriesOnAllNodes(uid types.UID) bool { return s.retries.Has(uid) }
