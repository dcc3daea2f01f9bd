// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/diagnosis"
	"github.com/nvtopo/nvtopo/pkg/nodestate/reservations"
)

// Unreserve takes back what Reserve promised; see reservations.Table.Unreserve.
func (s *State) Unreserve(uid types.UID, node string) {
	r := s.reservations.Present(uid, node)
	if r == nil {
		return
	}
	var bound *reservations.Bound
	if pod := s.listers.pods.pod(r.Namespace, r.Name, uid); pod != nil && pod.Spec.NodeName != "" {
		bound = s.bound(pod)
	}
	s.changes.tell(s.reservations.Unreserve(r, bound))
}

// bound is what the table is told of a pod that is bound.
func (s *State) bound(pod *v1.Pod) *reservations.Bound {
	return &reservations.Bound{
		UID: pod.UID, Node: pod.Spec.NodeName, Version: pod.ResourceVersion, Allocation: s.podDevices.allocationOf(pod, pod.Spec.NodeName),
	}
}

// podBound is called with the informer's copy of a bound pod.
func (s *State) podBound(pod *v1.Pod) {
	if s.reservations.Knows(pod.UID) {
		s.changes.tell(s.reservations.PodBound(s.bound(pod)))
	}
}

// podGone is called when the informer no longer has the pod.
func (s *State) podGone(uid types.UID) {
	change := s.reservations.PodGone(uid)
	s.podDevices.memo.Forget(uid)
	s.changes.tell(change)
}

// Gone reports whether the informer said a short time ago that it no longer has a pod:
// it was deleted, or has ended. A Binding of one that has ended succeeds and nothing
// tells of it, so whoever would wait for the bound pod would wait for ever.
func (s *State) Gone(uid types.UID) bool { return s.reservations.Gone(uid) }

// Sweep drops settled reservations which the given snapshot can replace. Call it at the
// start of a scheduling cycle, where nothing else reads an older snapshot.
func (s *State) Sweep(snapshot fwk.NodeInfoLister) {
	s.swept.Store(s.clock.Now().UnixNano())
	s.changes.tell(s.reservations.ExpireNominated())
	settled := s.reservations.Settled()
	if len(settled) == 0 {
		return
	}
	s.changes.tell(s.reservations.Drop(slices.DeleteFunc(settled, func(r reservations.Settled) bool { return !s.replaceable(r, snapshot) })))
}

// replaceable reports whether the snapshot alone now says what the reservation said.
// A confirmed reservation needs its pod listed with an allocation: the scheduler's
// cache may have forgotten a pod whose binding it believed lost, and not have
// heard yet that it was carried out. And it must be the pod as of its binding:
// an assumed pod has the annotation that an earlier attempt left on it, and goes
// again when the present attempt fails. A void one says nothing of its pod any more, once
// that is listed as it was bound: by somebody who wrote no allocation, perhaps.
func (s *State) replaceable(r reservations.Settled, snapshot fwk.NodeInfoLister) bool {
	info, err := snapshot.Get(r.Node.Name())
	if err != nil {
		return true // the node is gone, and with it all that could be chosen there
	}
	for _, pi := range info.GetPods() {
		if pod := pi.GetPod(); pod.UID == r.UID {
			cmp, err := resourceversion.CompareResourceVersion(pod.ResourceVersion, r.Version)
			return err == nil && cmp >= 0 && (r.Void || s.podDevices.allocationOf(pod, r.Node.Name()) != nil)
		}
	}
	return r.Void
}

// Dump returns the whole table ordered by pod.
func (s *State) Dump() []diagnosis.Reservation {
	var out []diagnosis.Reservation
	for _, r := range s.reservations.List() {
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
