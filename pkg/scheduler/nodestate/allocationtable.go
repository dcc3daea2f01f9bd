// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"slices"
	"sync"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/diagnosis"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/reservations"
)

// AllocationTable has the assumed allocations: those chosen for pods that do not show them yet in the
// scheduler's view. Devices are chosen only here.
type AllocationTable struct {
	clock        clock.PassiveClock
	cache        *NodeCache
	reservations *reservations.Table
	changes      *Changes
	choosing     sync.Mutex   // held while devices are chosen and the choice is recorded
	swept        atomic.Int64 // when the last cycle began, in Unix nanoseconds
}

// Assume chooses the pod's devices on a node and records the choice; one call in the process at a time.
// For a pod that has a present reservation on the node, planned or not, it returns that reservation's
// allocation. A nil allocation with Fits means that the node has no valid graph and the pod needs none.
func (t *AllocationTable) Assume(d *placement.Demand, pod *v1.Pod, info fwk.NodeInfo, snapshot fwk.NodeInfoLister) (*allocation.Allocation, placement.Reason) {
	if r, _ := t.reservations.Begin(pod.UID, info.Node().Name); r != nil {
		return r.Allocation, placement.Fits
	}
	u, reason := t.cache.usable(d, info, snapshot)
	if u == nil {
		return nil, reason
	}
	x := t.cache.cells.ensure(u.Node.Name)
	promised := t.cache.promised(x, d.UID, d.Priority)
	t.choosing.Lock()
	defer t.choosing.Unlock()
	if t.cache.cells.get(x.name) != x {
		return nil, placement.NoGraph // the node is gone
	}
	if r, _ := t.reservations.Begin(pod.UID, x.name); r != nil {
		return r.Allocation, placement.Fits
	}
	if t.Gone(pod.UID) {
		return nil, placement.PodGone
	}
	here := slices.Concat(info.GetPods(), promised)
	if _, before := t.cache.usageAgain(d, x, u.Node, info.GetGeneration(), here, snapshot); before != nil {
		return t.record(d, pod, x, before.Allocation, before)
	}
	// Reservations are added under this mutex only, so the usage that Filter remembered may still be valid.
	if now := t.cache.remembered(x, u.Node, info); now != nil && !now.FromStore && len(promised) == 0 {
		u = now
	} else {
		u = t.cache.computeUsage(x, u.Node, info.GetGeneration(), here, snapshot)
	}
	a, reason := placement.Choose(u, d.Request, d.WantCPUs)
	if reason != placement.Fits {
		return nil, reason
	}
	now := t.clock.Now()
	a.Assumed, a.Enforced = now.UTC(), u.Node.Enforced(now)
	if a, reason = t.record(d, pod, x, a, nil); reason == placement.Fits {
		countChoice(u, a)
	}
	return a, reason
}

// record adds a choice to the table; again is the reservation that the pod takes again, or nil. The
// caller holds t.choosing.
func (t *AllocationTable) record(d *placement.Demand, pod *v1.Pod, x *cell, a *allocation.Allocation, again *reservations.Reservation) (*allocation.Allocation, placement.Reason) {
	change, added := t.reservations.Add(&reservations.Reservation{
		UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name, Node: &x.reserved, Allocation: a, Request: d.Request,
	}, again)
	if !added {
		return nil, placement.PodGone
	}
	t.changes.tell(change)
	return a, placement.Fits
}

// Forget takes back an allocation that Assume recorded; see reservations.Table.Unreserve.
func (t *AllocationTable) Forget(uid types.UID, node string) {
	r := t.reservations.Present(uid, node)
	if r == nil {
		return
	}
	var bound *reservations.Bound
	if pod := t.cache.listers.pods.pod(r.Namespace, r.Name, uid); pod != nil && pod.Spec.NodeName != "" {
		bound = t.bound(pod)
	}
	t.changes.tell(t.reservations.Unreserve(r, bound))
}

// bound describes a bound pod for the table of reservations.
func (t *AllocationTable) bound(pod *v1.Pod) *reservations.Bound {
	return &reservations.Bound{
		UID: pod.UID, Node: pod.Spec.NodeName, Version: pod.ResourceVersion, Allocation: t.cache.podDevices.allocationOf(pod, pod.Spec.NodeName),
	}
}

// podBound is called with the informer's copy of a bound pod.
func (t *AllocationTable) podBound(pod *v1.Pod) {
	if t.reservations.Knows(pod.UID) {
		t.changes.tell(t.reservations.PodBound(t.bound(pod)))
	}
}

// podGone is called when the informer no longer has the pod.
func (t *AllocationTable) podGone(uid types.UID) {
	change := t.reservations.PodGone(uid)
	t.cache.podDevices.memo.Forget(uid)
	t.changes.tell(change)
}

// Gone reports whether the informer dropped a pod a short time ago, because it was deleted or has ended.
// A Binding of a pod that has ended succeeds and causes no event, so a caller must not wait for that pod
// to become bound.
func (t *AllocationTable) Gone(uid types.UID) bool { return t.reservations.Gone(uid) }

// Sweep drops settled reservations that the given snapshot replaces. Call it at the start of a scheduling
// cycle, when no older snapshot is being read.
func (t *AllocationTable) Sweep(snapshot fwk.NodeInfoLister) {
	t.swept.Store(t.clock.Now().UnixNano())
	t.changes.tell(t.reservations.ExpireNominated())
	settled := t.reservations.Settled()
	if len(settled) == 0 {
		return
	}
	t.changes.tell(t.reservations.Drop(slices.DeleteFunc(settled, func(r reservations.Settled) bool { return !t.replaceable(r, snapshot) })))
}

// replaceable reports whether the snapshot without the reservation shows the same devices as used. A
// confirmed reservation needs its pod in the snapshot with an allocation, because the scheduler's cache
// may have forgotten a pod whose binding it believed lost, and not yet have the event that it was carried
// out. The pod must also be at least as new as its binding: an assumed pod has the annotation of an
// earlier attempt and is dropped again if the present attempt fails. A void reservation is replaced once
// its pod is listed as it was bound, even without an allocation, for another scheduler may have bound it.
func (t *AllocationTable) replaceable(r reservations.Settled, snapshot fwk.NodeInfoLister) bool {
	info, err := snapshot.Get(r.Node.Name())
	if err != nil {
		return true // the node is gone, and with it all that could be chosen there
	}
	for _, pi := range info.GetPods() {
		if pod := pi.GetPod(); pod.UID == r.UID {
			cmp, err := resourceversion.CompareResourceVersion(pod.ResourceVersion, r.Version)
			return err == nil && cmp >= 0 && (r.Void || t.cache.podDevices.allocationOf(pod, r.Node.Name()) != nil)
		}
	}
	return r.Void
}

// Dump returns the whole table ordered by pod.
func (t *AllocationTable) Dump() []diagnosis.Reservation {
	var out []diagnosis.Reservation
	for _, r := range t.reservations.List() {
		l := diagnosis.Reservation{Pod: r.Namespace + "/" + r.Name, Node: r.Node.Name(), UID: r.UID, Phase: r.Phase.String(), Since: r.Since}
		if r.Awaits {
			l.Phase = diagnosis.Awaiting
		}
		if r.Allocation != nil { // the place of a gang's pod without GPUs has none
			for _, ca := range r.Allocation.Containers {
				l.GPUs = append(l.GPUs, ca.GPUs...)
			}
		}
		out = append(out, l)
	}
	slices.SortFunc(out, func(a, b diagnosis.Reservation) int {
		return slices.Compare([]string{a.Pod, string(a.UID), a.Node}, []string{b.Pod, string(b.UID), b.Node})
	})
	return out
}

// forgetNode removes the cell of a node, unless the node has an object or a reservation.
//
// A cycle that found the cell before may go on using it: it then finds no graph. It cannot add a
// reservation to it, because reservations are added to cells that are found, or compared, while choosing
// is held. The waker, the index and Stampers keep cells for longer; they are notified, or compare
// cells.forgotten.
func (t *AllocationTable) forgetNode(x *cell) bool {
	t.choosing.Lock()
	defer t.choosing.Unlock()
	return t.cache.cells.forget(x, func() bool {
		reserved := x.reserved.View()
		return t.cache.listers.nodes.node(x.name) == nil && len(reserved.Reservations)+len(reserved.Nominated) == 0 && t.cache.topologies.Forget(x.name)
	})
}
