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

// A pod whose binding is in doubt may take the same choice again: whatever of the attempt
// before is still carried out says the same as the new one. Otherwise each attempt
// would keep a set of GPUs until its doubt is decided.

// usageAgain returns the usage of a node as a pod finds it that has a choice in doubt there,
// and the reservation with this choice, if the pod may have it again: it asks for the same, and
// the solver would take this set if these GPUs were all that is free.
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

// mayTakeAgain returns the node on which the pod may take its choice again that is in doubt;
// empty if there is none.
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
