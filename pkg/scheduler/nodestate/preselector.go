// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/nodeindex"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/refusals"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/candidates"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/fabricview"
)

// PreSelector lists the nodes that a cycle considers: the best ones for its pod, without those of which a
// place is kept from the pod.
type PreSelector struct {
	cache    *NodeCache
	fabric   *fabricview.Views
	index    *candidates.Index
	retries  *candidates.Retries
	refusals *refusals.Table // nodes to which others are preferred
	closed   candidates.Closed
	waiting  *WaitingPods
}

// newIndex returns the index of the nodes that have cells.
func newIndex(clk clock.PassiveClock, cells *cells, views *fabricview.Views, stride int) *candidates.Index {
	return candidates.NewIndex(clk, func(name string) *candidates.Node { return &cells.ensure(name).candidate },
		func() *fabric.Tree { return views.Current().Tree }, stride)
}

// Spares returns, by node, the whole machines with that resource in the node's part of the fabric. It
// decides between nodes that are otherwise equal: the least is best, and a node that is missing has 0.
// Call it in PreScore: Score runs once per node and must not wait for a lock.
func (p *PreSelector) Spares(resource string, nodes []fwk.NodeInfo) map[string]nodeindex.Spare {
	if !p.fabric.Current().HasLevels() {
		return nil
	}
	return p.index.Spares(resource, nodes)
}

// Reserved returns the machines that are left to larger pods than the one of the demand, according to the
// pods at the beginning of the last cycle. Call it in PreScore, like Spares.
func (p *PreSelector) Reserved(d *placement.Demand, order *nodeindex.Order) nodeindex.Reserved {
	r := &d.Resources[0]
	return p.index.Reserved(r.Name, r.Count, order)
}

// Candidates lists the best nodes for the pod, or returns nil if the list would be empty or the pod is
// not to be narrowed because it is nominated, names its node, or is tried on all nodes. best is how nodes
// with GPUs were rated. See candidates.Index.List.
func (p *PreSelector) Candidates(d *placement.Demand, pod *v1.Pod, how *candidates.Narrowing, h fwk.Handle, nodes []fwk.NodeInfo) (names sets.Set[string], best nodeindex.Best) {
	q := candidates.Query{
		Pod: pod, Demand: d, Narrowing: how,
		Nodes: nodes, Snapshot: h.SnapshotSharedLister().NodeInfos(), Queue: h, Closed: &p.closed,
	}
	if !p.index.Refresh(&q) || p.BeginRetry(pod.UID) {
		return nil, nodeindex.Best{}
	}
	q.Again = p.cache.mayTakeAgain(d, q.Snapshot)
	if p.refusals.Any() {
		q.Refuses = p.refusals.Refuses
	}
	return p.index.List(&q)
}

// HasBoth reports whether some nodes of the last cycle had accelerators and some had none.
func (p *PreSelector) HasBoth() bool { return p.index.HasBoth() }

// TakesWholeNodes reports whether the pod takes all devices of any node it could be placed on, so that
// the choice of devices within a node need not be rated.
func (p *PreSelector) TakesWholeNodes(r *podrequest.Request) bool { return p.index.TakesWholeNodes(r) }

// RetryOnAllNodes makes the pod's next cycle consider all nodes, and activates the pod, in case it gets
// back to the queue only after candidates.Retries activates it.
func (p *PreSelector) RetryOnAllNodes(logger klog.Logger, pod *v1.Pod, h fwk.Handle) {
	p.retries.Add(pod)
	h.Activate(logger, map[string]*v1.Pod{pod.Namespace + "/" + pod.Name: pod})
}

// BeginRetry reports whether the pod's cycle, which begins now, must consider all nodes. Candidates calls
// it; other code that limits a pod's cycle must call it, too. If it is not called, the pod is activated
// during that cycle and comes again without a pause.
func (p *PreSelector) BeginRetry(uid types.UID) bool { return p.retries.Begin(uid) }

// EndRetry ends a pod's retry on all nodes, so that its cycles are narrowed again.
func (p *PreSelector) EndRetry(uid types.UID) { p.retries.Remove(uid) }

// RetriesOnAllNodes reports whether the pod's next cycle considers all nodes.
func (p *PreSelector) RetriesOnAllNodes(uid types.UID) bool { return p.retries.Has(uid) }

// Closed returns the places that are kept from some pods now.
func (p *PreSelector) Closed() *candidates.Closed { return &p.closed }

// KeptFrom returns the place kept for a gang on a node that a pod outside of gangs would use, given the
// node as in info and its reservations; nil if there is none. never: the pod would use it even if the
// node were empty. It does not allocate memory.
func (p *PreSelector) KeptFrom(pod *v1.Pod, request *podrequest.Request, info fwk.NodeInfo) (k *candidates.Kept, never bool) {
	node := info.Node().Name
	if len(p.closed.Kept()[node]) == 0 {
		return nil, false
	}
	use := candidates.Use{Have: info.GetAllocatable(), Used: info.GetRequested(), Pods: info.GetPods(), Reserved: p.cache.reservedOn(node).Reservations, Own: pod.UID}
	return p.closed.KeptFrom(pod, request, node, &use)
}

// Keep replaces the places that are kept for gangs. If one of the earlier places ended, waiting pods are
// gradually tried again. It may be called under any lock but the waker's.
func (p *PreSelector) Keep(places map[string][]*candidates.Kept) {
	before := p.closed.Kept()
	p.closed.Keep(places)
	for node, was := range before {
		if slices.ContainsFunc(was, func(k *candidates.Kept) bool { return !slices.Contains(places[node], k) }) {
			p.waiting.tryAgain()
			return
		}
	}
}
