// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"slices"

	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/reservations"
)

// A pod whose binding has an unknown outcome may take the same allocation again: if the earlier attempt
// is still carried out, it writes the same as the new one. Otherwise each attempt would keep a set of
// GPUs until its outcome is known.

// usageAgain returns the usage of a node for a pod that has a reservation with unknown outcome there, and
// this reservation, if the pod may take it again: its request is unchanged, and the solver would choose
// this set if only these GPUs were free. Otherwise it returns nils.
func (s *NodeCache) usageAgain(d *placement.Demand, x *cell, n *usage.Node, generation int64, here []fwk.PodInfo, snapshot fwk.NodeInfoLister) (*usage.Usage, *reservations.Reservation) {
	reserved := x.reserved.View()
	if !reserved.Doubtful() {
		return nil, nil
	}
	r := reserved.InDoubt(d.UID)
	if r == nil || r.Request.Signature() != d.Signature() {
		return nil, nil
	}
	if slices.ContainsFunc(here, func(pi fwk.PodInfo) bool { return pi.GetPod().UID == d.UID }) {
		return nil, nil
	}
	in := s.input(reserved, n, generation, here, snapshot)
	in.Retried = d.UID
	u := usage.Compute(&in)
	if placement.Check(u, d.Request) != placement.Fits {
		return nil, nil
	}
	only := *u
	only.Used, only.Counted = make([]nvtopo.Mask, len(u.Used)), make([]int, len(u.Counted))
	for i, accel := range n.Accels {
		only.Used[i] = u.Used[i] | ^r.Allocation.Mask(accel.Resource, accel.Graph)
	}
	a, reason := placement.Choose(&only, d.Request, false)
	if reason != placement.Fits || len(u.FreeCPUs().Minus(r.Allocation.CPUs())) != len(u.FreeCPUs())-len(r.Allocation.CPUs()) {
		return nil, nil
	}
	a.SetCPUs(r.Allocation.CPUs())
	if !a.Equal(r.Allocation) {
		return nil, nil
	}
	return u, r
}

// mayTakeAgain returns the node on which the pod may take its allocation with unknown outcome again, or
// "".
func (s *NodeCache) mayTakeAgain(d *placement.Demand, snapshot fwk.NodeInfoLister) string {
	name := s.reservations.TriedOn(d.UID)
	if name == "" {
		return ""
	}
	x := s.cells.get(name)
	info, err := snapshot.Get(name)
	if x == nil || err != nil {
		return "" // the node is gone
	}
	n := x.entry.Node()
	if n == nil {
		return ""
	}
	if _, before := s.usageAgain(d, x, n, info.GetGeneration(), info.GetPods(), snapshot); before == nil {
		return ""
	}
	return name
}
