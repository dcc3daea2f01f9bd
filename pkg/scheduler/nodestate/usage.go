// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/reservations"
)

// usage returns the usage of a node with the pods of info. snapshot is the cycle's: a pod that is on the
// node there but not in info was removed by a dry run, so its reservation is ignored.
//
// The order of reading guarantees that no device is missed: the reservations first, then annotations and
// the informer's store. A reservation is dropped only once a cycle's snapshot shows the pod that replaces
// it (see Sweep), so a pod that moves from one place to the other meanwhile is seen at least once.
func (s *NodeCache) usage(x *cell, n *usage.Node, info fwk.NodeInfo, snapshot fwk.NodeInfoLister) *usage.Usage {
	if u := s.remembered(x, n, info); u != nil {
		return u
	}
	u := s.computeUsage(x, n, info.GetGeneration(), info.GetPods(), snapshot)
	x.usage.Store(u)
	return u
}

// remembered returns the node's usage if none of its inputs has changed, except for the informer's store
// (see Usage.FromStore); else nil.
func (s *NodeCache) remembered(x *cell, n *usage.Node, info fwk.NodeInfo) *usage.Usage {
	u := x.usage.Load()
	if u == nil || u.Node != n || u.Generation != info.GetGeneration() || u.Revision != x.candidate.Revision.Load() || s.outlived(u) {
		return nil
	}
	return u
}

// outlived reports whether the agent died or came back since the usage was computed, and this matters for
// it.
func (s *NodeCache) outlived(u *usage.Usage) bool {
	return u.Unreleased && u.AgentLived != u.Node.Enforced(s.clock.Now())
}

// input returns the input for computing the usage of a node with the pods of here. The caller has read
// the reservations before.
func (s *NodeCache) input(reserved *reservations.View, n *usage.Node, generation int64, here []fwk.PodInfo, snapshot fwk.NodeInfoLister) usage.Input {
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

// computeUsage computes the usage of a node with the pods of here.
func (s *NodeCache) computeUsage(x *cell, n *usage.Node, generation int64, here []fwk.PodInfo, snapshot fwk.NodeInfoLister) *usage.Usage {
	revision := x.candidate.Revision.Load() // read before the inputs: at worst the usage is computed again
	in := s.input(x.reserved.View(), n, generation, here, snapshot)
	in.Revision = revision
	return usage.Compute(&in)
}

// outlook describes an expected future state of a node.
type outlook struct {
	gone  sets.Set[types.UID] // pods whose reservations are ignored
	ahead bool                // kubelet has released the devices of pods that have just ended
}

// usageBeside returns the usage of a node with its nominated pods and with further reservations (more)
// that are about to be made.
func (s *NodeCache) usageBeside(x *cell, n *usage.Node, info fwk.NodeInfo, snapshot fwk.NodeInfoLister, nominated []fwk.PodInfo, more []usage.Reservation, at *outlook) *usage.Usage {
	if len(nominated)+len(more)+at.gone.Len() == 0 && !at.ahead {
		if u := s.remembered(x, n, info); u != nil && !u.FromStore {
			return u
		}
	}
	view := x.reserved.View()
	if at.gone.Len() > 0 {
		view = view.Without(at.gone.Has)
	}
	if len(more) > 0 {
		view = &reservations.View{Reservations: slices.Concat(view.Reservations, more), Nominated: view.Nominated}
	}
	in := s.input(view, n, info.GetGeneration(), slices.Concat(info.GetPods(), nominated), snapshot)
	if at.ahead {
		in.Released = s.reservations.Gone
	}
	return usage.Compute(&in)
}

// inputFromStores returns the input for computing the usage of a node outside of a scheduling cycle.
func (s *NodeCache) inputFromStores(x *cell, n *usage.Node) *usage.Input {
	reserved := x.reserved.View() // before the pods, see usage
	var pods usage.LivePods
	for _, p := range s.listers.nodes.podsOn(n.Name) {
		if p.Status.Phase != v1.PodSucceeded && p.Status.Phase != v1.PodFailed {
			pods = append(pods, usage.NewLivePod(p))
		}
	}
	return &usage.Input{
		Node: n, Now: s.clock.Now(), Pods: pods, Listed: pods, Reservations: reserved.Reservations, Reader: &reader{s: s, reserved: reserved},
	}
}

// podInfos are pods in the form of the scheduler framework.
type podInfos []fwk.PodInfo

func (p *podInfos) Len() int                      { return len(*p) }
func (p *podInfos) Pod(i int) *v1.Pod             { return (*p)[i].GetPod() }
func (p *podInfos) Requests(i int) usage.Requests { return (*p)[i].CalculateResource().Resource }

// reader reads the allocations of a node's pods. It also holds the lists of an input, so that one memory
// allocation suffices for all.
type reader struct {
	s            *NodeCache
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
