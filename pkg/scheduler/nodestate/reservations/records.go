// SPDX-License-Identifier: Apache-2.0

package reservations

import (
	"slices"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// records are what a Table has, without its lock: each of their methods is part of a step of the
// Table, and needs Table.mu.
type records struct {
	clock clock.PassiveClock

	writing atomic.Int64  // reservations that are on their way to be bound; read without the lock
	arrived chan struct{} // one of them is not any more
	planned atomic.Int64  // reservations that are planned, and places; read without the lock

	byPod     map[types.UID][]*Reservation
	places    map[types.UID]*Reservation // of pods in the plan of a gang that get no devices
	settled   map[*Reservation]struct{}  // the confirmed and the void
	carrying  map[types.UID]struct{}     // unbound pods that carry a choice which was dropped
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

// presentOn needs Table.mu.
func (t *records) presentOn(uid types.UID, node string) *Reservation {
	for _, r := range t.byPod[uid] {
		if r.Node.name == node && r.present() {
			return r
		}
	}
	return nil
}

// insert needs Table.mu, and that the node is published then.
func (t *records) insert(r *Reservation) {
	t.byPod[r.UID] = append(t.byPod[r.UID], r)
	r.Node.reservations = append(r.Node.reservations, r)
}

// drop needs Table.mu.
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

// setPhase needs Table.mu.
func (t *records) setPhase(r *Reservation, p Phase) {
	t.mark(r, p)
	r.Node.publish()
}

// mark is setPhase for whoever publishes the node then. It needs Table.mu.
func (t *records) mark(r *Reservation, p Phase) {
	if p != Reserved {
		t.setWriting(r, p == Binding)
	}
	if was, is := r.phase == Planned, p == Planned; was != is {
		t.countPlanned(is)
	}
	r.phase, r.since = p, t.clock.Now()
}
