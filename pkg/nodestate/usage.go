// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/allocation"
	"github.com/nvtopo/nvtopo/pkg/nodestate/reservations"
	"github.com/nvtopo/nvtopo/pkg/usage"
)

// usage returns what is used on a node as info shows it. snapshot is the cycle's:
// a pod that is on the node there but not in info was taken out by a dry run,
// so its reservation does not count.
//
// The order of reading is the guarantee: the reservations first, then annotations and
// the informer's store. A reservation is dropped only once a cycle's snapshot shows
// what replaces it (see Sweep), so a pod that moves from one place to the other
// while this runs is seen at least once.
func (s *State) usage(x *cell, n *usage.Node, info fwk.NodeInfo, snapshot fwk.NodeInfoLister) *usage.Usage {
	if u := s.remembered(x, n, info); u != nil {
		return u
	}
	u := s.computeUsage(x, n, info.GetGeneration(), info.GetPods(), snapshot)
	x.usage.Store(u)
	return u
}

// remembered returns the node's usage if nothing it was computed from has changed,
// but for what the informer's store had (see Usage.FromStore); else nil.
func (s *State) remembered(x *cell, n *usage.Node, info fwk.NodeInfo) *usage.Usage {
	u := x.usage.Load()
	if u == nil || u.Node != n || u.Generation != info.GetGeneration() || u.Revision != x.candidate.Revision.Load() || s.outlived(u) {
		return nil
	}
	return u
}

// outlived reports whether the agent died or came back since, and that matters.
func (s *State) outlived(u *usage.Usage) bool {
	return u.Unreleased && u.AgentLived != u.Node.Enforced(s.clock.Now())
}

// input is what the usage of a node with the pods of here is computed from. What is reserved
// there was read before.
func (s *State) input(reserved *reservations.View, n *usage.Node, generation int64, here []fwk.PodInfo, snapshot fwk.NodeInfoLister) usage.Input {
	r := &reader{s: s, reserved: reserved, here: here}
	in := usage.Input{Node: n, Now: s.clock.Now(), Generation: generation, Pods: &r.here, Reservations: reserved.Reservations, Reader: r}
	if len(reserved.Reservations) > 0 || len(n.Records) > 0 {
		if info, err := snapshot.Get(n.Name); err == nil {
			r.listed = info.GetPods()
			in.Listed = &r.listed
		}
	}
	return in
}

// computeUsage is the usage of a node with the pods of here.
func (s *State) computeUsage(x *cell, n *usage.Node, generation int64, here []fwk.PodInfo, snapshot fwk.NodeInfoLister) *usage.Usage {
	revision := x.candidate.Revision.Load() // before what it counts: at worst this is computed again
	in := s.input(x.reserved.View(), n, generation, here, snapshot)
	in.Revision = revision
	return usage.Compute(&in)
}

// podInfos are pods as the scheduler has them.
type podInfos []fwk.PodInfo

func (p *podInfos) Len() int                      { return len(*p) }
func (p *podInfos) Pod(i int) *v1.Pod             { return (*p)[i].GetPod() }
func (p *podInfos) Requests(i int) usage.Requests { return (*p)[i].CalculateResource().Resource }

// reader reads what is known of a node's pods. It keeps the lists of an input as well, so
// that one allocation does for all.
type reader struct {
	s            *State
	reserved     *reservations.View
	here, listed podInfos
}

func (r *reader) Allocation(pod *v1.Pod, node string) *allocation.Allocation {
	return r.s.podDevices.allocationOf(pod, node)
}

func (r *reader) Stored(pod *v1.Pod) *v1.Pod {
	return r.s.listers.pods.pod(pod.Namespace, pod.Name, pod.UID)
}

func (r *reader) Nominated(uid types.UID) *allocation.Allocation {
	if n := r.reserved.NominatedFor(uid); n != nil {
		return n.Allocation
	}
	return nil
}
