// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/diagnosis"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/reservations"
)

// Nominator has the allocations that are kept for nominated pods until their victims are gone.
type Nominator struct {
	clock clock.PassiveClock
	cache *NodeCache
	table *AllocationTable
}

// ReserveNominated keeps an allocation for a pod on the node of alloc; see
// reservations.Table.ReserveNominated.
func (m *Nominator) ReserveNominated(uid types.UID, alloc *allocation.Allocation, w reservations.WaitsFor) {
	m.table.choosing.Lock() // so that the cell is not forgotten
	change := m.table.reservations.ReserveNominated(&m.cache.cells.ensure(alloc.Node).reserved, uid, alloc, w)
	m.table.choosing.Unlock()
	m.table.changes.tell(change)
}

// EndNominated forgets the nominated allocation of a pod.
func (m *Nominator) EndNominated(uid types.UID) {
	m.table.changes.tell(m.table.reservations.EndNominated(uid))
}

// Leaving returns the pods of a node that have recently been chosen as victims of other nominated pods
// with at least this priority, whether or not the API server has received the evictions. These victims
// are evicted for those pods: should an eviction fail, the victim stays.
func (m *Nominator) Leaving(node string, uid types.UID, priority int32) []types.UID {
	if len(m.cache.reservedOn(node).Nominated) == 0 {
		return nil
	}
	nominated := m.cache.listers.nominated(node)
	view, now := m.cache.reservedOn(node), m.clock.Now()
	var out []types.UID
	for _, pi := range nominated {
		n := view.NominatedFor(pi.GetPod().UID)
		if n != nil && n.UID != uid && corev1.PodPriority(pi.GetPod()) >= priority {
			out = append(out, n.Leaving(now)...)
		}
	}
	return out
}

// Evicting returns the node on which victims of a pod have recently been chosen, whether or not the
// scheduler's cache shows the evictions; "" if there is none.
func (m *Nominator) Evicting(uid types.UID) string {
	n := m.table.reservations.Nominated(uid)
	if n == nil || len(n.Leaving(m.clock.Now())) == 0 {
		return ""
	}
	return n.Node.Name()
}

// EvictedFor returns the pods that have recently been chosen as victims of a pod, whether or not the
// scheduler's cache shows their end.
func (m *Nominator) EvictedFor(uid types.UID) []types.UID {
	if n := m.table.reservations.Nominated(uid); n != nil {
		return n.Leaving(m.clock.Now())
	}
	return nil
}

// Releasing reports whether, according to the node's live agent, kubelet still has devices of a pod that
// has ended, or is ending, and that this pod waits for. No further pod need be evicted meanwhile. A pod
// whose eviction failed runs on and is not waited for.
func (m *Nominator) Releasing(uid types.UID, info fwk.NodeInfo) bool {
	kept := m.cache.reservedOn(info.Node().Name).NominatedFor(uid)
	if kept == nil {
		return false
	}
	stays := map[types.UID]bool{}
	for _, pi := range info.GetPods() {
		if pod := pi.GetPod(); pod.DeletionTimestamp == nil {
			stays[pod.UID] = true
		}
	}
	n, now := m.cache.Node(info.Node().Name), m.clock.Now()
	if n == nil || now.After(kept.Until) || !n.Enforced(now) {
		return false
	}
	return slices.ContainsFunc(kept.WaitsFor(), func(v types.UID) bool { return !stays[v] && len(n.Records[v]) > 0 })
}

// NominatedReservations returns the table ordered by pod, for people and checks.
func (m *Nominator) NominatedReservations() []diagnosis.NominatedReservation {
	var out []diagnosis.NominatedReservation
	for _, n := range m.table.reservations.ListNominated() {
		line := diagnosis.NominatedReservation{UID: n.UID, Node: n.Node.Name(), Until: n.Until.UTC()}
		for i := range n.Allocation.Containers {
			line.GPUs = append(line.GPUs, n.Allocation.Containers[i].GPUs...)
		}
		out = append(out, line)
	}
	slices.SortFunc(out, func(a, b diagnosis.NominatedReservation) int { return cmp.Compare(a.UID, b.UID) })
	return out
}
