// SPDX-License-Identifier: Apache-2.0

package reservations

import (
	"slices"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// records has the fields of a Table without its lock: each method is part of a step of the Table, and its
// caller holds Table.mu.
type records struct {
	clock clock.PassiveClock

	writing atomic.Int64  // reservations whose writes are in progress; read without the lock
	arrived chan struct{} // receives when writing decreases
	planned atomic.Int64  // reservations that are planned, and places; read without the lock

	byPod     map[types.UID][]*Reservation
	places    map[types.UID]*Reservation // of gang members in a plan that get no devices
	settled   map[*Reservation]struct{}  // those that are confirmed or void
	carrying  map[types.UID]struct{}     // unbound pods that carry an allocation which was dropped
	resolving int                        // doubtful reservations whose pods are being read
	nominated map[types.UID]*Nominated
	gone      terminated
}

func newRecords(clk clock.PassiveClock) records {
	return records{
		clock: clk, arrived: make(chan struct{}, 1),
		byPod: map[types.UID][]*Reservation{}, places: map[types.UID]*Reservation{}, settled: map[*Reservation]struct{}{}, carrying: map[types.UID]struct{}{},
		nominated: map[types.UID]*Nominated{},
	}
}

// presentOn returns the pod's reservation of its present attempt on a node, or nil. The caller holds
// Table.mu.
func (t *records) presentOn(uid types.UID, node string) *Reservation {
	for _, r := range t.byPod[uid] {
		if r.Node.name == node && r.present() {
			return r
		}
	}
	return nil
}

// insert adds a reservation. The caller holds Table.mu and publishes the node afterwards.
func (t *records) insert(r *Reservation) {
	t.byPod[r.UID] = append(t.byPod[r.UID], r)
	r.Node.reservations = append(r.Node.reservations, r)
}

// drop removes a reservation. The caller holds Table.mu.
func (t *records) drop(r *Reservation, c *Change) {
	t.mark(r, Void)
	delete(t.settled, r)
	same := func(o *Reservation) bool { return o == r }
	r.Node.reservations = slices.DeleteFunc(r.Node.reservations, same)
	if rest := slices.DeleteFunc(t.byPod[r.UID], same); len(rest) == 0 {
		delete(t.byPod, r.UID)
	} else {
		t.byPod[r.UID] = rest
	}
	r.Node.publish()
	c.Nodes = append(c.Nodes, r.Node)
}

// setPhase moves a reservation to a phase and publishes its node. The caller holds Table.mu.
func (t *records) setPhase(r *Reservation, p Phase) {
	t.mark(r, p)
	r.Node.publish()
}

// mark is setPhase without publishing the node, which the caller does. The caller holds Table.mu.
func (t *records) mark(r *Reservation, p Phase) {
	if p != Reserved {
		t.setWriting(r, p == Binding)
	}
	if was, is := r.phase == Planned, p == Planned; was != is {
		t.countPlanned(is)
	}
	r.phase, r.since = p, t.clock.Now()
}
