// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"math"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/reservations"
)

// GangReserver reserves devices for all pods of a gang at once, before their cycles.
type GangReserver struct {
	cache *NodeCache
	table *AllocationTable
}

// GangMember is a pod of a gang, and its place in the gang's plan.
type GangMember struct {
	Pod    *v1.Pod
	Demand *placement.Demand
	Node   string
	GPUs   nvtopo.Mask // of the first requested resource, by position in the node's graph; 0 for a pod without GPUs
}

// ReserveGang reserves the planned devices for all pods of a gang, or for none. Each set is checked as
// AllocationTable.Assume would, with the sets of the members before it as used; GPUs of further
// resources, NUMA nodes and CPUs are chosen here. It returns -1, or the first member that cannot have its
// set, and why.
//
// Nominated allocations of the gang's own pods are ignored: the plan replaces them.
//
// A gang may wait for some pods to end; if it waits for none, infos and gone are nil. infos are copies of
// nodes without these pods. gone are these pods and others whose reservations are ignored: until they
// have ended, the devices are assigned both to them and to the gang. Such a reservation must not be used
// before that; the gang is planned again.
func (v *GangReserver) ReserveGang(members []GangMember, snapshot fwk.NodeInfoLister, infos map[string]fwk.NodeInfo, gone sets.Set[types.UID]) (failed int, reason placement.Reason) {
	g := &gangChoice{
		reserver: v, snapshot: snapshot, infos: infos, at: &outlook{gone: gone, ahead: gone != nil}, uids: sets.New[types.UID](), priority: math.MaxInt32, onNode: map[string]*gangNode{},
	}
	for i := range members {
		g.uids.Insert(members[i].Pod.UID)
		g.priority = min(g.priority, members[i].Demand.Priority)
	}
	for i := range members { // the scheduling queue is read before anything is locked
		g.ask(members[i].Node)
	}
	v.table.choosing.Lock()
	defer v.table.choosing.Unlock()
	for i := range members {
		switch uid := members[i].Pod.UID; {
		case v.table.Gone(uid):
			return i, placement.PodGone
		case v.table.reservations.Attempted(uid):
			return i, placement.AttemptGoesOn
		}
	}
	chosen := make([]*reservations.Reservation, len(members))
	for i := range members {
		if chosen[i], reason = g.choose(&members[i]); reason != placement.Fits {
			return i, reason
		}
	}
	change, refused := v.table.reservations.AddAll(chosen)
	if refused >= 0 {
		return refused, placement.PodGone
	}
	v.table.changes.tell(change)
	return -1, placement.Fits
}

// gangChoice is the state of choosing devices for one gang.
type gangChoice struct {
	reserver *GangReserver
	snapshot fwk.NodeInfoLister
	infos    map[string]fwk.NodeInfo // nodes on which pods must end first, without these pods
	at       *outlook
	uids     sets.Set[types.UID] // of the members
	priority int32               // the lowest of the members
	onNode   map[string]*gangNode
}

// gangNode is one node of the plan: its nominated pods, and the allocations chosen for members so far.
type gangNode struct {
	nominated []fwk.PodInfo
	chosen    []usage.Reservation
}

func (g *gangChoice) ask(node string) {
	if g.onNode[node] != nil {
		return
	}
	n := &gangNode{}
	g.onNode[node] = n
	if x := g.reserver.cache.cells.get(node); x != nil {
		n.nominated = slices.DeleteFunc(g.reserver.cache.promised(x, "", g.priority), func(pi fwk.PodInfo) bool {
			uid := pi.GetPod().UID
			return g.uids.Has(uid) || g.at.gone.Has(uid)
		})
	}
}

// choose makes one member's reservation. The caller holds AllocationTable.choosing.
func (g *gangChoice) choose(m *GangMember) (*reservations.Reservation, placement.Reason) {
	info, err := g.snapshot.Get(m.Node)
	if err != nil {
		return nil, placement.NoGraph // the node is gone
	}
	if without := g.infos[m.Node]; without != nil {
		info = without
	}
	x := g.reserver.cache.cells.ensure(m.Node)
	r := &reservations.Reservation{UID: m.Pod.UID, Namespace: m.Pod.Namespace, Name: m.Pod.Name, Node: &x.reserved, Request: m.Demand.Request, Priority: g.priority, Awaits: g.at.ahead}
	if !m.Demand.HasGPUs() {
		return r, placement.Fits
	}
	a, reason := g.allocate(m, x, info)
	if reason != placement.Fits {
		return nil, reason
	}
	r.Allocation = a
	n := g.onNode[m.Node]
	n.chosen = append(n.chosen, usage.Reservation{UID: r.UID, Allocation: a, Request: r.Request})
	return r, placement.Fits
}

// allocate chooses one member's devices. The caller holds AllocationTable.choosing.
func (g *gangChoice) allocate(m *GangMember, x *cell, info fwk.NodeInfo) (*allocation.Allocation, placement.Reason) {
	cache, at := g.reserver.cache, g.onNode[m.Node]
	n, now := x.entry.Node(), cache.clock.Now()
	if reason := cache.topologies.CheckGraph(x.entry, n, info.Node().UID); reason != placement.Fits {
		return nil, reason
	}
	u := cache.usageBeside(x, n, info, g.snapshot, at.nominated, at.chosen, g.at)
	a, reason := placement.ChooseOnly(u, m.Demand, m.GPUs, now)
	if reason != placement.Fits {
		return nil, reason
	}
	a.Assumed, a.Enforced = now.UTC(), n.Enforced(now)
	countChoice(u, a)
	return a, placement.Fits
}

// Planned returns the node on which a pod has its planned place, if no cycle has begun to use it. It may
// be called under any lock, and takes none while nothing is planned.
func (v *GangReserver) Planned(uid types.UID) (node string, ok bool) {
	return v.table.reservations.Planned(uid)
}

// KeepPlanned makes the planned places of pods outlive attempts that certainly wrote nothing; see
// reservations.Table.Keep.
func (v *GangReserver) KeepPlanned(uids ...types.UID) { v.table.reservations.Keep(uids...) }

// EndPlanned takes back the planned places of pods whose cycles have not begun to use them.
func (v *GangReserver) EndPlanned(uids ...types.UID) {
	v.table.changes.tell(v.table.reservations.EndPlanned(uids...))
}

// ReservePlanned is Assume for a pod that PreFilter found planned on the node. ended is true if the plan
// has ended since. With a nil allocation and ended false, the pod has no GPUs and nothing was chosen.
func (v *GangReserver) ReservePlanned(uid types.UID, node string) (a *allocation.Allocation, ended bool) {
	r, placed := v.table.reservations.Begin(uid, node)
	if r != nil {
		return r.Allocation, false
	}
	return nil, !placed
}

// JudgePlanned returns whether a node still has the devices that are planned there for a pod. ok is false
// for a pod without GPUs, which the caller must pass to Judge.
func (v *GangReserver) JudgePlanned(d *placement.Demand, info fwk.NodeInfo) (reason placement.Reason, ok bool) {
	node := info.Node()
	r := v.table.reservations.Present(d.UID, node.Name)
	if r == nil {
		if d.HasGPUs() {
			return placement.PlanEnded, true
		}
		return placement.Fits, false
	}
	e := v.cache.topologies.Known(node.Name)
	n := e.Node()
	return placement.JudgePlanned(r.Allocation, d, n, v.cache.topologies.CheckGraph(e, n, node.UID), v.cache.clock.Now()), true
}

// TakesAgain returns the node on which the pod may take its allocation with unknown outcome again, and
// the GPUs of the first resource; "" if there is none.
func (v *GangReserver) TakesAgain(d *placement.Demand, snapshot fwk.NodeInfoLister) (node string, gpus nvtopo.Mask) {
	if node = v.cache.mayTakeAgain(d, snapshot); node == "" || !d.HasGPUs() {
		return "", 0
	}
	r, n := v.cache.reservedOn(node).InDoubt(d.UID), v.cache.Node(node)
	if r == nil || n == nil || n.Accel(d.Resources[0].Name) == nil {
		return "", 0
	}
	accel := n.Accel(d.Resources[0].Name)
	return node, r.Allocation.Mask(accel.Resource, accel.Graph)
}
