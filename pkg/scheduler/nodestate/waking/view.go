// SPDX-License-Identifier: Apache-2.0

package waking

import (
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/candidates"
)

// view is the current state of one node according to the informers, the reservations and the plans for
// woken pods. It is immutable. The scheduler's cache may be a moment behind it or ahead.
type view struct {
	source   Source
	node     *v1.Node
	topology *usage.Node      // nil without a graph
	graph    placement.Reason // Fits if the graph is valid
	enforced bool
	usage    *usage.Usage // nil without a graph

	allocatable, requested fwk.Resource
	podCount               int         // including planned pods
	users                  []types.UID // sorted: pods, and those with a reservation
	nominated              []fwk.PodInfo
	kept                   []*allocation.Allocation // allocations of nominated pods
	// grewAt is when the node last gained capacity for some pod, as far as is known.
	grewAt time.Time
}

// plan has the devices that a woken pod is expected to take.
type plan struct {
	of    *waitingPod
	alloc *allocation.Allocation // nil if only their number is known
}

// newView computes the view of a node; nil if there is none. Pods that are nominated for the node are
// included if count returns true. The allocation with unknown outcome of the pod except is ignored.
func newView(o Source, plans []*plan, count func(nominated *v1.Pod) bool, except types.UID, now time.Time) *view {
	node := o.Node()
	if node == nil {
		return nil
	}
	nominated := o.Nominated()
	info := framework.NewNodeInfo(o.Pods()...)
	info.SetNode(node)
	n := o.Topology()
	v := &view{
		source: o, node: node, topology: n, graph: o.CheckGraph(n, node.UID), enforced: n != nil && n.Enforced(now),
		allocatable: info.GetAllocatable(), requested: info.GetRequested(), nominated: nominated,
	}
	for _, pi := range nominated {
		if count(pi.GetPod()) {
			info.AddPodInfo(pi)
		}
	}
	var planned []usage.Reservation
	for _, p := range plans {
		info.AddPod(p.of.pod)
		if p.alloc != nil {
			planned = append(planned, usage.Reservation{UID: p.of.pod.UID, Allocation: p.alloc, Request: p.of.demand.Request})
		}
	}
	v.podCount = len(info.GetPods())
	for _, pi := range info.GetPods() {
		v.users = append(v.users, pi.GetPod().UID)
	}
	r := o.Reserved(n, info, planned, except)
	v.usage, v.kept, v.users = r.Usage, r.Nominated, append(v.users, r.Pods...)
	slices.Sort(v.users)
	return v
}

// mayTakeMore reports whether the node may now take a pod that it did not take in its state old.
func (v *view) mayTakeMore(old *view) bool {
	if v.topology != old.topology || v.graph != old.graph || v.enforced != old.enforced || !sameRules(v.node, old.node) {
		return true
	}
	if slices.ContainsFunc(old.kept, func(a *allocation.Allocation) bool { return !slices.Contains(v.kept, a) }) {
		return true
	}
	if !subset(old.users, v.users) || !slices.EqualFunc(v.nominated, old.nominated, samePod) {
		return true
	}
	return v.hasMoreLeft(old) || v.usage != nil && v.usage.Freer(old.usage)
}

// subset reports whether all of a are in b; both are sorted.
func subset(a, b []types.UID) bool {
	for _, uid := range a {
		if _, ok := slices.BinarySearch(b, uid); !ok {
			return false
		}
	}
	return true
}

func samePod(a, b fwk.PodInfo) bool { return a.GetPod().UID == b.GetPod().UID }

// sameRules reports whether a node keeps the same pods off as before.
func sameRules(a, b *v1.Node) bool {
	if a == b {
		return true
	}
	sameTaint := func(x, y v1.Taint) bool { return x.Key == y.Key && x.Value == y.Value && x.Effect == y.Effect }
	return a.UID == b.UID && a.Spec.Unschedulable == b.Spec.Unschedulable && slices.EqualFunc(a.Spec.Taints, b.Spec.Taints, sameTaint) &&
		maps.Equal(a.Labels, b.Labels)
}

// hasMoreLeft reports whether more of some requestable resource is left than in old.
func (v *view) hasMoreLeft(old *view) bool {
	left := func(v *view) [4]int64 {
		have, used := v.allocatable, v.requested
		return [...]int64{
			have.GetMilliCPU() - used.GetMilliCPU(), have.GetMemory() - used.GetMemory(),
			have.GetEphemeralStorage() - used.GetEphemeralStorage(), int64(have.GetAllowedPodNumber() - v.podCount),
		}
	}
	now, before := left(v), left(old)
	for i := range now {
		if now[i] > before[i] {
			return true
		}
	}
	for name, n := range v.allocatable.GetScalarResources() {
		if n-v.requested.GetScalarResources()[name] > old.allocatable.GetScalarResources()[name]-old.requested.GetScalarResources()[name] {
			return true
		}
	}
	return false
}

// full reports whether the node has no free device. A node without a valid graph is not known to be full.
func (v *view) full() bool {
	if v.usage == nil || v.graph != placement.Fits {
		return false
	}
	for i := range v.usage.Node.Accels {
		if v.usage.FreeAt(i).Len() > v.usage.Counted[i] {
			return false
		}
	}
	return len(v.usage.Node.Accels) > 0
}

// admits reports whether only devices can keep the pod off the node, judging by taints, labels and
// requests.
func (v *view) admits(r *candidates.Rules) bool {
	return r.Admit(v.node, v.allocatable, v.requested, v.podCount)
}

// hasDevicesFor reports whether the node has devices for a pod's demand now.
func (v *view) hasDevicesFor(d *placement.Demand, now time.Time) bool {
	graph := v.source.CheckGraph(v.topology, v.node.UID)
	return placement.Judge(v.usage, d, d.Basis(v.topology, graph), graph, now) == placement.Fits
}

// grewSince reports whether a node gained capacity after the pod was refused, or its attempt failed, or
// so shortly before that the scheduler may not have known.
func (v *view) grewSince(w *waitingPod) bool {
	last := w.refused
	if w.failed.After(last) {
		last = w.failed
	}
	return v.grewAt.After(last.Add(-CacheDelay))
}
