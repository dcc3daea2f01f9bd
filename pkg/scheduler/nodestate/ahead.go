// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/reservations"
)

// computeFor returns the usage of a node with the pods of here, for one demand. With d.Ahead it assumes
// that kubelet has released the devices of pods that have just ended, and has admitted pods that were
// just bound.
func (s *NodeCache) computeFor(d *placement.Demand, x *cell, n *usage.Node, generation int64, here []fwk.PodInfo, snapshot fwk.NodeInfoLister) *usage.Usage {
	if !d.Ahead {
		return s.computeUsage(x, n, generation, here, snapshot)
	}
	view := x.reserved.View()
	if d.Yield {
		yielding := view.Yielding(d.Priority)
		view = view.Without(func(uid types.UID) bool { return slices.Contains(yielding, uid) })
	}
	in := s.input(view, n, generation, here, snapshot)
	in.Released = s.reservations.Gone
	u := usage.Compute(&in)
	now := s.clock.Now()
	if len(u.ToAdmit) > 0 && n.Enforced(now) && placement.Check(u, d.Request) == placement.KubeletBusy && x.busy.lately(now) {
		u.ToAdmit = nil
	}
	return u
}

// Yielding returns the gang members with a planned place on a node that yield to a pod of this priority.
// No cycle has begun to use these places.
func (s *NodeCache) Yielding(node string, priority int32) []types.UID {
	return s.reservedOn(node).Yielding(priority)
}

// Has reports whether a node has a reservation for a pod, or its live agent reports devices of the pod in
// kubelet's record.
func (s *NodeCache) Has(node string, uid types.UID) bool {
	if slices.ContainsFunc(s.reservedOn(node).Reservations, func(r usage.Reservation) bool { return r.UID == uid }) {
		return true
	}
	n := s.Node(node)
	return n != nil && n.Enforced(s.clock.Now()) && len(n.Records[uid]) > 0
}

// Unreleased lists the pods, as namespace/name, that have just ended and whose devices the node's kubelet
// has not released yet. A pod that the agent did not name is listed by its UID.
func (s *NodeCache) Unreleased(node string) []string {
	n := s.Node(node)
	if n == nil {
		return nil
	}
	var out []string
	for uid, recs := range n.Records {
		if len(recs) > 0 && s.reservations.Gone(uid) {
			out = append(out, cmp.Or(recs[0].Pod, string(uid)))
		}
	}
	slices.Sort(out)
	return out
}

// busySince has the times at which a node's kubelet was first and last found to have pods to admit before
// another one.
type busySince struct {
	mu          sync.Mutex // guards both
	first, last time.Time
}

// lately records that kubelet is busy at now, and reports whether it has been so for at most
// reservations.ReleaseWithin.
func (b *busySince) lately(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now.Sub(b.last) > reservations.ReleaseWithin {
		b.first = now
	}
	b.last = now
	return now.Sub(b.first) <= reservations.ReleaseWithin
}
