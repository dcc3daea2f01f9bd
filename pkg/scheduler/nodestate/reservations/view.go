// SPDX-License-Identifier: Apache-2.0

package reservations

import (
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/placement/usage"
)

// Node is the table's entry for the node of one name. Its pointer is its identity.
type Node struct {
	name string
	view atomic.Pointer[View]

	// Guarded by Table.mu.
	reservations []*Reservation
	nominated    []*Nominated
}

// Init makes n the entry for the node of this name, without reservations. Call it before any other use.
func (n *Node) Init(name string) {
	n.name = name
	n.view.Store(&View{})
}

// Name returns the node's name.
func (n *Node) Name() string { return n.name }

// View returns the current reservations on the node. It takes no lock and does not allocate memory.
func (n *Node) View() *View { return n.view.Load() }

// View has the reservations on a node at one moment. It is immutable.
type View struct {
	// Reservations are all of the node, in the order in which they were made, including those that are
	// confirmed or void.
	Reservations []usage.Reservation
	// Nominated are the nominated allocations on the node.
	Nominated []*Nominated

	states []state // of Reservations, in the same order
	doubts int     // how many of them are doubtful
}

// state is the state of a reservation when a View was made.
type state struct {
	r     *Reservation
	phase Phase
}

// publish makes a new View of a node. The caller holds Table.mu.
func (n *Node) publish() {
	v := &View{}
	if len(n.reservations) > 0 {
		v.Reservations, v.states = make([]usage.Reservation, len(n.reservations)), make([]state, len(n.reservations))
	}
	for i, r := range n.reservations {
		v.set(i, r, r.phase)
	}
	v.Nominated = append(v.Nominated, n.nominated...)
	n.view.Store(v)
}

// set writes the reservation at a position, while the View is being made.
func (v *View) set(i int, r *Reservation, p Phase) {
	v.Reservations[i] = usage.Reservation{UID: r.UID, Allocation: r.Allocation, Request: r.Request}
	v.states[i] = state{r, p}
	if p == Doubtful {
		v.doubts++
	}
}

// Doubtful reports whether some pod's allocation on the node has an unknown outcome.
func (v *View) Doubtful() bool { return v.doubts > 0 }

// InDoubt returns the pod's doubtful reservation on the node; nil if it has none there, another one that
// is not doubtful, or several that differ.
func (v *View) InDoubt(uid types.UID) (found *Reservation) {
	for _, s := range v.states {
		if s.r.UID != uid {
			continue
		}
		if s.phase != Doubtful || found != nil && !s.r.Allocation.Equal(found.Allocation) {
			return nil
		}
		found = s.r
	}
	return found
}

// Live returns a copy without void reservations and without the doubtful ones of the pod own, which may
// take these again. The caller must have read the node's pods before it read v, so that it knows the
// events that ended reservations.
func (v *View) Live(own types.UID) *View {
	out := &View{Nominated: v.Nominated}
	for i, s := range v.states {
		if s.phase != Void && (s.r.UID != own || s.phase != Doubtful) {
			out.Reservations = append(out.Reservations, v.Reservations[i])
		}
	}
	return out
}

// Without returns a copy without the reservations of some pods.
func (v *View) Without(gone func(types.UID) bool) *View {
	out := &View{Nominated: v.Nominated}
	for i := range v.Reservations {
		if !gone(v.Reservations[i].UID) {
			out.Reservations = append(out.Reservations, v.Reservations[i])
		}
	}
	return out
}

// Yielding returns the pods with planned reservations on the node that yield to a pod of this priority.
func (v *View) Yielding(priority int32) (uids []types.UID) {
	for _, s := range v.states {
		if s.phase == Planned && s.r.Priority < priority {
			uids = append(uids, s.r.UID)
		}
	}
	return uids
}

// NominatedFor returns the nominated allocation of a pod on the node, or nil.
func (v *View) NominatedFor(uid types.UID) *Nominated {
	for _, n := range v.Nominated {
		if n.UID == uid {
			return n
		}
	}
	return nil
}
