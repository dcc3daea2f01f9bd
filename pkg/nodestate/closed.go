// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/nodestate/candidates"
	"github.com/nvtopo/nvtopo/pkg/podrequest"
)

// Closed are the places that are kept from some pods now.
func (s *State) Closed() *candidates.Closed { return &s.closed }

// KeptFrom returns what a pod that is in no gang would take of what is kept for gangs on a node as info shows
// it, beside what is reserved there; nil if nothing. never: it would not even if the node were empty. It
// does not allocate.
func (s *State) KeptFrom(pod *v1.Pod, request *podrequest.Request, info fwk.NodeInfo) (k *candidates.Kept, never bool) {
	node := info.Node().Name
	if len(s.closed.Kept()[node]) == 0 {
		return nil, false
	}
	use := candidates.Use{Have: info.GetAllocatable(), Used: info.GetRequested(), Pods: info.GetPods(), Reserved: s.reservedOn(node).Reservations, Own: pod.UID}
	return s.closed.KeptFrom(pod, request, node, &use)
}

// ReservedBeside returns how much of a resource is reserved on a node for pods that info does not have, but for
// some that are gone, which may be nil.
func (s *State) ReservedBeside(info fwk.NodeInfo, name v1.ResourceName, gone sets.Set[types.UID]) int64 {
	view := s.reservedOn(info.Node().Name)
	if gone.Len() > 0 {
		view = view.Without(gone.Has)
	}
	return candidates.ReservedBeside(info.GetPods(), view.Reservations, "", name)
}

// Keep replaces the places that are kept for gangs. Pods that one was kept from are tried again,
// by and by. It may be called under any lock but the waker's.
func (s *State) Keep(places map[string][]*candidates.Kept) {
	before := s.closed.Kept()
	s.closed.Keep(places)
	for node, was := range before {
		if slices.ContainsFunc(was, func(k *candidates.Kept) bool { return !slices.Contains(places[node], k) }) {
			s.tryAgain()
			return
		}
	}
}

func (s *State) tryAgain() {
	s.waker.OpenGates()
	s.waker.WakeOthers()
}
