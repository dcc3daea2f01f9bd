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

// PreSelector lists the nodes that a cycle looks at: those on which its pod does best, and none of
// which a place is kept from it.
type PreSelector struct {
	cache    *NodeCache
	fabric   *fabricview.Views
	index    *candidates.Index
	retries  *candidates.Retries
	refusals *refusals.Table // nodes that others are preferred to
	closed   candidates.Closed
	waiting  *WaitingPods
}

// newIndex returns the index of the nodes that have cells.
func newIndex(clk clock.PassiveClock, cells *cells, views *fabricview.Views, stride int) *candidates.Index {
	return candidates.NewIndex(clk, func(name string) *candidates.Node { return &cells.ensure(name).candidate },
		func() *fabric.Tree { return views.Current().Tree }, stride)
}

// Spares says by node what its part of the fabric has of whole machines with that resource, which
// decides between nodes that are equal otherwise: the least is best, and 0 is that of a node which
// is left out. It is for PreScore: Score, which is asked about each node, must not wait for a lock.
func (p *PreSelector) Spares(resource string, nodes []fwk.NodeInfo) map[string]nodeindex.Spare {
	if !p.fabric.Current().HasLevels() {
		return nil
	}
	return p.index.Spares(resource, nodes)
}

// Reserved are the machines that are left to larger pods than the one that makes the demand, by what
// ran on them at the last cycle's beginning. It is for PreScore, as Spares is.
func (p *PreSelector) Reserved(d *placement.Demand, order *nodeindex.Order) nodeindex.Reserved {
	r := &d.Resources[0]
	return p.index.Reserved(r.Name, r.Count, order)
}

// Candidates lists the nodes that the pod does best on, or nil where the list would be empty
// or the pod is not to be narrowed: it is nominated, names its node, or is tried on all
// nodes. Nodes with GPUs were rated by best. See candidates.Index.List.
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

// HasBoth reports whether some nodes of the last cycle had accelerators and some
// had none.
func (p *PreSelector) HasBoth() bool { return p.index.HasBoth() }

// TakesWholeNodes reports whether the pod takes all devices of any node it could be
// placed on, so that no other place on the node is left to be rated.
func (p *PreSelector) TakesWholeNodes(r *podrequest.Request) bool { return p.index.TakesWholeNodes(r) }

// RetryOnAllNodes makes the pod's next cycle look at all nodes and sees that it comes at
// once. The activation now counts if anything delays the pod's way back to the queue.
func (p *PreSelector) RetryOnAllNodes(logger klog.Logger, pod *v1.Pod, h fwk.Handle) {
	p.retries.Add(pod)
	h.Activate(logger, map[string]*v1.Pod{pod.Namespace + "/" + pod.Name: pod})
}

// BeginRetry reports whether the pod's cycle, which begins now, is to look at all nodes. Candidates
// asks this itself; whoever else limits a pod's cycle asks here. If nobody does, the pod is activated
// while that cycle is under way, and comes again without a pause.
func (p *PreSelector) BeginRetry(uid types.UID) bool { return p.retries.Begin(uid) }

// EndRetry lets the pod get a list again.
func (p *PreSelector) EndRetry(uid types.UID) { p.retries.Remove(uid) }

// RetriesOnAllNodes reports whether the pod's next cycle looks at all nodes.
func (p *PreSelector) RetriesOnAllNodes(uid types.UID) bool { return p.retries.Has(uid) }

// Closed are the places that are kept from some pods now.
func (p *PreSelector) Closed() *candidates.Closed { return &p.closed }

// KeptFrom returns what a pod that is in no gang would take of what is kept for gangs on a node as info shows
// it, beside what is reserved there; nil if nothing. never: it would not even if the node were empty. It
// does not allocate.
func (p *PreSelector) KeptFrom(pod *v1.Pod, request *podrequest.Request, info fwk.NodeInfo) (k *candidates.Kept, never bool) {
	node := info.Node().Name
	if len(p.closed.Kept()[node]) == 0 {
		return nil, false
	}
	use := candidates.Use{Have: info.GetAllocatable(), Used: info.GetRequested(), Pods: info.GetPods(), Reserved: p.cache.reservedOn(node).Reservations, Own: pod.UID}
	return p.closed.KeptFrom(pod, request, node, &use)
}

// Keep replaces the places that are kept for gangs. Pods that one was kept from are tried again,
// by and by. It may be called under any lock but the waker's.
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
