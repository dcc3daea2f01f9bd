// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/allocation"
	"github.com/nvtopo/nvtopo/pkg/diagnosis"
	"github.com/nvtopo/nvtopo/pkg/nodestate/reservations"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/usage"
)

// ReserveNominated keeps what a pod is to get on the node of alloc; see
// reservations.Table.ReserveNominated.
func (s *State) ReserveNominated(uid types.UID, alloc *allocation.Allocation, w reservations.WaitsFor) {
	s.choosing.Lock() // so that the cell is not forgotten
	change := s.reservations.ReserveNominated(&s.cells.ensure(alloc.Node).reserved, uid, alloc, w)
	s.choosing.Unlock()
	s.changes.tell(change)
}

// EndNominated forgets what a pod was to get.
func (s *State) EndNominated(uid types.UID) { s.changes.tell(s.reservations.EndNominated(uid)) }

// reservedOn returns what is reserved on a node of which nothing may be known.
func (s *State) reservedOn(node string) *reservations.View {
	if x := s.cells.get(node); x != nil {
		return x.reserved.View()
	}
	return &reservations.View{}
}

// promised lists the pods nominated for a node that have a nominated reservation there which a pod
// of the given priority has to leave alone.
func (s *State) promised(x *cell, uid types.UID, priority int32) []fwk.PodInfo {
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
func (s *State) withPromised(u *usage.Usage, d *placement.Demand, info fwk.NodeInfo, snapshot fwk.NodeInfoLister) *usage.Usage {
	x := s.cells.ensure(u.Node.Name)
	promised := s.promised(x, d.UID, d.Priority)
	if len(promised) == 0 {
		return u
	}
	return s.computeFor(d, x, u.Node, info.GetGeneration(), slices.Concat(info.GetPods(), promised), snapshot)
}

// Leaving returns which pods of a node have lately been chosen as victims of other
// nominated pods that matter at least as much, whether the API server has heard of it or
// not. They are those pods' to evict: should that fail, they stay.
func (s *State) Leaving(node string, uid types.UID, priority int32) []types.UID {
	if len(s.reservedOn(node).Nominated) == 0 {
		return nil
	}
	nominated := s.listers.nominated(node)
	view, now := s.reservedOn(node), s.clock.Now()
	var out []types.UID
	for _, pi := range nominated {
		n := view.NominatedFor(pi.GetPod().UID)
		if n != nil && n.UID != uid && corev1.PodPriority(pi.GetPod()) >= priority {
			out = append(out, n.Leaving(now)...)
		}
	}
	return out
}

// Evicting returns the node on which victims of a pod have lately been chosen, whether the
// scheduler's cache has heard of it or not; empty if there is none.
func (s *State) Evicting(uid types.UID) string {
	n := s.reservations.Nominated(uid)
	if n == nil || len(n.Leaving(s.clock.Now())) == 0 {
		return ""
	}
	return n.Node.Name()
}

// EvictedFor returns the pods that were chosen as victims of a pod a moment ago, whether the scheduler's cache has
// heard of their end or not.
func (s *State) EvictedFor(uid types.UID) []types.UID {
	if n := s.reservations.Nominated(uid); n != nil {
		return n.Leaving(s.clock.Now())
	}
	return nil
}

// Releasing reports whether the node's living agent still says that kubelet has the
// devices of a pod that went, or is going, and that this pod waits for: nobody else need
// go while it does. One whose eviction failed runs on and is not waited for.
func (s *State) Releasing(uid types.UID, info fwk.NodeInfo) bool {
	kept := s.reservedOn(info.Node().Name).NominatedFor(uid)
	if kept == nil {
		return false
	}
	stays := map[types.UID]bool{}
	for _, pi := range info.GetPods() {
		if pod := pi.GetPod(); pod.DeletionTimestamp == nil {
			stays[pod.UID] = true
		}
	}
	n, now := s.Node(info.Node().Name), s.clock.Now()
	if n == nil || now.After(kept.Until) || !n.Enforced(now) {
		return false
	}
	return slices.ContainsFunc(kept.WaitsFor(), func(v types.UID) bool { return !stays[v] && len(n.Records[v]) > 0 })
}

// NominatedReservations returns the table ordered by pod, for people and checks.
func (s *State) NominatedReservations() []diagnosis.NominatedReservation {
	var out []diagnosis.NominatedReservation
	for _, n := range s.reservations.ListNominated() {
		line := diagnosis.NominatedReservation{UID: n.UID, Node: n.Node.Name(), Until: n.Until.UTC()}
		for i := range n.Allocation.Containers {
			line.GPUs = append(line.GPUs, n.Allocation.Containers[i].GPUs...)
		}
		out = append(out, line)
	}
	slices.SortFunc(out, func(a, b diagnosis.NominatedReservation) int { return cmp.Compare(a.UID, b.UID) })
	return out
}
