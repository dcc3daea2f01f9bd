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

// computeFor is the usage of a node with the pods of here as it counts for a demand. For
// one that looks ahead, kubelet has released the devices of pods that have just gone,
// and admitted those that have just come.
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

// Yielding returns the pods of gangs with places on a node, which no cycle has begun to use, that
// yield to a pod of this priority.
func (s *NodeCache) Yielding(node string, priority int32) []types.UID {
	return s.reservedOn(node).Yielding(priority)
}

// Has reports whether something is reserved for a pod on a node, or its living agent says that
// kubelet has devices of it.
func (s *NodeCache) Has(node string, uid types.UID) bool {
	if slices.ContainsFunc(s.reservedOn(node).Reservations, func(r usage.Reservation) bool { return r.UID == uid }) {
		return true
	}
	n := s.Node(node)
	return n != nil && n.Enforced(s.clock.Now()) && len(n.Records[uid]) > 0
}

// Unreleased lists the pods, as namespace/name, that have just gone and whose devices the
// node's kubelet has yet to release. Of a pod that an agent did not name it is the UID.
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

// busySince is when a node's kubelet was first found to have pods to admit before another,
// and when last.
type busySince struct {
	mu          sync.Mutex // guards both
	first, last time.Time
}

// lately takes note that kubelet is found so now, and reports whether it was not found so for
// longer than it may take.
func (b *busySince) lately(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now.Sub(b.last) > reservations.ReleaseWithin {
		b.first = now
	}
	b.last = now
	return now.Sub(b.first) <= reservations.ReleaseWithin
}
