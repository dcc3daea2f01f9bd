// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/usage"
)

// maxAgain is how many attempts in a row a pod is sent to the node of the choice that is
// in doubt. Something may be wrong with binding it there, and other nodes may be free.
const maxAgain = 4

// A pod whose binding is in doubt may take the same choice again: whatever of the attempt
// before is still carried out says the same as the new one. Otherwise each attempt
// would keep a set of GPUs until its doubt is decided.

// inDoubt returns the pod's choice on a node that an attempt left in doubt, and nil if it
// has none there, or several that differ; it needs s.mu.
func (x *cell) inDoubt(uid types.UID) (found *reservation) {
	for _, c := range x.reservations {
		if c.uid != uid {
			continue
		}
		if c.phase != doubtful || found != nil && !c.alloc.Equal(found.alloc) {
			return nil
		}
		found = c
	}
	return found
}

// again returns the usage of a node as a pod finds it that has a choice in doubt there,
// and the reservation with this choice, if the pod may have it again: it asks for the same, and
// the solver would take this set if these GPUs were all that is free. It needs s.mu.
func (s *State) again(d *Demand, x *cell, n *usage.Node, generation int64, here []fwk.PodInfo, snapshot fwk.NodeInfoLister) (*usage.Usage, *reservation) {
	if x == nil || x.doubts.Load() == 0 {
		return nil, nil
	}
	c := x.inDoubt(d.UID)
	if c == nil || c.request.Signature() != d.Signature() {
		return nil, nil
	}
	if slices.ContainsFunc(here, func(pi fwk.PodInfo) bool { return pi.GetPod().UID == d.UID }) {
		return nil, nil
	}
	in := s.input(x, n, generation, here, snapshot)
	in.Retried = d.UID
	u := usage.Compute(&in)
	if placement.Check(u, d.Request) != placement.Fits {
		return nil, nil
	}
	only := *u
	only.Used, only.Counted = make([]nvtopo.Mask, len(u.Used)), make([]int, len(u.Counted))
	for i, accel := range n.Accels {
		only.Used[i] = u.Used[i] | ^c.alloc.Mask(accel.Resource, accel.Graph)
	}
	a, reason := placement.Choose(&only, d.Request, false)
	if reason != placement.Fits || len(u.FreeCPUs().Minus(c.alloc.CPUs())) != len(u.FreeCPUs())-len(c.alloc.CPUs()) {
		return nil, nil
	}
	a.SetCPUs(c.alloc.CPUs())
	if !a.Equal(c.alloc) {
		return nil, nil
	}
	return u, c
}

// usageAgain is the usage that again returns, or nil.
func (s *State) usageAgain(d *Demand, x *cell, n *usage.Node, info fwk.NodeInfo, snapshot fwk.NodeInfoLister) *usage.Usage {
	if x.doubts.Load() == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	u, _ := s.again(d, x, n, info.GetGeneration(), info.GetPods(), snapshot)
	return u
}

// triedOn returns the node of the pod's last choice that is in doubt, empty if there is
// none or it has failed too often.
func (s *State) triedOn(uid types.UID) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return triedOn(s.reservations[uid])
}

// mayTakeAgain returns the node on which the pod may take its choice again that is in doubt;
// empty if there is none.
func (s *State) mayTakeAgain(d *Demand, snapshot fwk.NodeInfoLister) string {
	name := s.triedOn(d.UID)
	if name == "" {
		return ""
	}
	x := s.cells.get(name)
	info, err := snapshot.Get(name)
	if x == nil || err != nil {
		return "" // the node is gone
	}
	n := x.topology.Node()
	if n == nil || s.usageAgain(d, x, n, info, snapshot) == nil {
		return ""
	}
	return name
}

func triedOn(reservations []*reservation) string {
	for _, c := range slices.Backward(reservations) {
		if c.phase == doubtful && c.times < maxAgain {
			return c.node
		}
	}
	return ""
}

// retriedInVain counts an attempt that ends before its own writes among those with the
// choice that an earlier one left in doubt; it needs s.mu.
func (s *State) retriedInVain(c *reservation) {
	for _, o := range s.reservations[c.uid] {
		if o.phase == doubtful && o.alloc == c.alloc {
			o.times = max(o.times, c.times)
		}
	}
}

// attempts returns the pods whose choice is on its way to be bound, and triedOn of all
// pods where it is not empty.
func (s *State) attempts() (chosen map[types.UID]bool, tried map[types.UID]string) {
	chosen, tried = map[types.UID]bool{}, map[types.UID]string{}
	s.mu.Lock()
	defer s.mu.Unlock()
	for uid, reservations := range s.reservations {
		if slices.ContainsFunc(reservations, func(c *reservation) bool { return c.phase == reserved || c.phase == binding }) {
			chosen[uid] = true
		}
		if node := triedOn(reservations); node != "" {
			tried[uid] = node
		}
	}
	return chosen, tried
}

// doubt makes a reservation doubtful that takes the place of earlier ones with the same choice;
// it needs s.mu.
func (s *State) doubt(c *reservation) {
	s.setPhase(c, doubtful)
	for _, o := range slices.Clone(s.reservations[c.uid]) {
		if o != c && o.phase == doubtful && o.alloc == c.alloc {
			s.drop(o)
		}
	}
}
