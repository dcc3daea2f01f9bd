// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/allocation"
	"github.com/nvtopo/nvtopo/pkg/diagnosis"
	"github.com/nvtopo/nvtopo/pkg/usage"
)

// EvictWithin is how long the eviction of a nominated pod's victim may take to reach the
// API server. One that is not being deleted by then is not going: its eviction failed.
const EvictWithin = 30 * time.Second

// nominatedReservation is the set that a nominated pod is to get once the pods it waits for are gone.
// It counts only as long as the scheduling queue has the pod nominated for that node,
// and for pods of its priority or less. The queue itself promises a number of
// devices, which is not enough: another pod could take one of a linked pair
// although other devices are free.
type nominatedReservation struct {
	uid     types.UID
	node    string
	alloc   *allocation.Allocation
	victims map[types.UID]time.Time // evicted for this pod, since when
	awaited []types.UID             // that go anyway, or for another pod
	until   time.Time
}

// Waiting says for whom a nominated pod waits.
type Waiting struct {
	Victims []types.UID // evicted for it
	Awaited []types.UID // that go without its doing
	Until   time.Time   // when they should be gone, and the pod have had its turn
}

// ReserveNominated keeps what a pod is to get on the node of alloc, until it is bound or gone,
// its nomination ends or the time is over. Another nominated reservation of the pod is replaced; a
// victim that both name has been on its way since the first.
func (s *State) ReserveNominated(uid types.UID, alloc *allocation.Allocation, w Waiting) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := &nominatedReservation{uid: uid, node: alloc.Node, alloc: alloc, victims: map[types.UID]time.Time{}, awaited: w.Awaited, until: w.Until}
	for _, v := range w.Victims {
		h.victims[v] = s.clock.Now()
	}
	if old := s.endNominated(uid); old != nil {
		for v, since := range old.victims {
			if _, again := h.victims[v]; again {
				h.victims[v] = since
			}
		}
		if !old.took(h.node, h.alloc) {
			s.onFreed()
		}
	}
	x := s.cells.ensure(h.node)
	s.nominatedReservations[uid] = h
	x.nominatedReservations = append(x.nominatedReservations, h)
	s.nominatedChanged(x)
}

// EndNominated forgets what a pod was to get.
func (s *State) EndNominated(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.endNominated(uid) != nil {
		s.onFreed()
	}
}

// endNominated returns the one that ended, if any. What it kept from others is free now,
// unless its pod took it, and nobody else says so: who calls wakes them. It needs s.mu.
func (s *State) endNominated(uid types.UID) *nominatedReservation {
	h, ok := s.nominatedReservations[uid]
	if !ok {
		return nil
	}
	delete(s.nominatedReservations, uid)
	x := s.cells.ensure(h.node)
	x.nominatedReservations = slices.DeleteFunc(x.nominatedReservations, func(o *nominatedReservation) bool { return o == h })
	s.nominatedChanged(x)
	return h
}

// nominatedChanged needs s.mu. What is remembered of the node may rest on its nominated reservations.
func (s *State) nominatedChanged(x *cell) {
	x.nominatedCount.Store(int32(len(x.nominatedReservations)))
	x.candidate.Revision.Add(1)
	s.touch(x)
}

// expireNominated forgets nominated reservations whose time is over, and wakes those whom they kept out; it
// needs s.mu.
func (s *State) expireNominated() {
	if len(s.nominatedReservations) == 0 {
		return
	}
	now := s.clock.Now()
	for uid, h := range s.nominatedReservations {
		if now.After(h.until) {
			s.endNominated(uid)
			s.onFreed()
		}
	}
}

// took reports whether a pod that was bound, or is held another set for, has all that was
// held for it.
func (h *nominatedReservation) took(node string, a *allocation.Allocation) bool {
	if h.node != node || a == nil {
		return false
	}
	for _, c := range h.alloc.Containers {
		has := a.GPUs(c.Resource)
		if slices.ContainsFunc(c.GPUs, func(id string) bool { return !slices.Contains(has, id) }) {
			return false
		}
	}
	return true
}

// nominatedOf returns a pod's nominated reservation on a node, or nil; it needs s.mu.
func (x *cell) nominatedOf(uid types.UID) *nominatedReservation {
	for _, h := range x.nominatedReservations {
		if h.uid == uid {
			return h
		}
	}
	return nil
}

// promised lists the pods nominated for a node that have a nominated reservation there which a pod
// of the given priority has to leave alone.
func (s *State) promised(x *cell, node string, uid types.UID, priority int32) []fwk.PodInfo {
	if x == nil || x.nominatedCount.Load() == 0 {
		return nil
	}
	nominated := s.nominated(node)
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []fwk.PodInfo
	for _, pi := range nominated {
		pod := pi.GetPod()
		if pod.UID != uid && corev1.PodPriority(pod) >= priority && x.nominatedOf(pod.UID) != nil {
			out = append(out, pi)
		}
	}
	return out
}

// withPromised is the usage of a node with what a pod of this demand has to leave to
// nominated ones. Filter gets those from the framework, as pods of the NodeInfo; for
// Score and Reserve they are added here.
func (s *State) withPromised(u *usage.Usage, d *Demand, info fwk.NodeInfo, snapshot fwk.NodeInfoLister) *usage.Usage {
	x := s.cells.get(u.Node.Name)
	promised := s.promised(x, u.Node.Name, d.UID, d.Priority)
	if len(promised) == 0 {
		return u
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.computeFor(d, x, u.Node, info.GetGeneration(), slices.Concat(info.GetPods(), promised), snapshot)
}

// Leaving returns which pods of a node have lately been chosen as victims of other
// nominated pods that matter at least as much, whether the API server has heard of it or
// not. They are those pods' to evict: should that fail, they stay.
func (s *State) Leaving(node string, uid types.UID, priority int32) []types.UID {
	x := s.cells.get(node)
	if x == nil || x.nominatedCount.Load() == 0 {
		return nil
	}
	nominated := s.nominated(node)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	var out []types.UID
	for _, pi := range nominated {
		h := x.nominatedOf(pi.GetPod().UID)
		if h == nil || h.uid == uid || corev1.PodPriority(pi.GetPod()) < priority {
			continue
		}
		for v, since := range h.victims {
			if now.Sub(since) <= EvictWithin {
				out = append(out, v)
			}
		}
	}
	return out
}

// Evicting returns the node on which victims of a pod have lately been chosen, whether the
// scheduler's cache has heard of it or not; empty if there is none.
func (s *State) Evicting(uid types.UID) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.nominatedReservations[uid]
	if h == nil {
		return ""
	}
	for _, since := range h.victims {
		if s.clock.Now().Sub(since) <= EvictWithin {
			return h.node
		}
	}
	return ""
}

// Releasing reports whether the node's living agent still says that kubelet has the
// devices of a pod that went, or is going, and that this pod waits for: nobody else need
// go while it does. One whose eviction failed runs on and is not waited for.
func (s *State) Releasing(uid types.UID, info fwk.NodeInfo) bool {
	x := s.cells.get(info.Node().Name)
	if x == nil || x.nominatedCount.Load() == 0 {
		return false
	}
	stays := map[types.UID]bool{}
	for _, pi := range info.GetPods() {
		if pod := pi.GetPod(); pod.DeletionTimestamp == nil {
			stays[pod.UID] = true
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	h, n, now := x.nominatedOf(uid), x.topology.Node(), s.clock.Now()
	if h == nil || n == nil || now.After(h.until) || !n.Enforced(now) {
		return false
	}
	waits := slices.AppendSeq(slices.Clone(h.awaited), maps.Keys(h.victims))
	return slices.ContainsFunc(waits, func(v types.UID) bool { return !stays[v] && len(n.Records[v]) > 0 })
}

// NominatedReservations returns the table ordered by pod, for people and checks.
func (s *State) NominatedReservations() []diagnosis.NominatedReservation {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []diagnosis.NominatedReservation
	for uid, h := range s.nominatedReservations {
		line := diagnosis.NominatedReservation{UID: uid, Node: h.node, Until: h.until.UTC()}
		for i := range h.alloc.Containers {
			line.GPUs = append(line.GPUs, h.alloc.Containers[i].GPUs...)
		}
		out = append(out, line)
	}
	slices.SortFunc(out, func(a, b diagnosis.NominatedReservation) int { return cmp.Compare(a.UID, b.UID) })
	return out
}
