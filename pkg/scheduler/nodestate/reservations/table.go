// SPDX-License-Identifier: Apache-2.0

package reservations

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// Table keeps all assumed and nominated allocations of a process. Make one with New.
//
// Each method is one atomic step. These combinations have to be atomic:
//
//   - Add, with the check whether the pod has gone. PodGone ends all reservations of a pod
//     and remembers that it went; one added in between would never end.
//   - AddAll, with the same check of each pod: a gang is planned as a whole or not at all.
//   - Begin, with the phase: EndPlanned drops only reservations that no cycle has begun to use.
//   - PodBound and PodGone, over all reservations of the pod and its nominated allocation: an
//     event that settles one of them settles the others.
//   - Unreserve, with the phase: no write may begin between the check whether one was in
//     flight and the result that the outcome is unknown, or that nothing is left.
//   - Decide, with the phase and with the pod's other reservations: an event may have settled
//     it after the pod was read.
//   - ToResolve, with the number of those that are being read.
//   - ReserveNominated, with the end of the pod's earlier nominated allocation.
//
// Choosing devices and recording the choice has to be atomic, too. That is up to the caller, who must not
// let other goroutines call Add in between. Other steps may come in between: they only take reservations
// away, so the chosen devices are still free.
//
// Reading a node needs no lock: see Node.View. A View has the whole node at one moment. It is replaced in
// the step that changes the node, and the caller gets the Change after that. So the View contains every
// change that was reported.
type Table struct {
	requestTimeout time.Duration
	mu             sync.Mutex // guards records, and the fields of Reservation and Node that are marked so
	records
}

// New returns an empty table. requestTimeout is how long the API server may still carry out a write that
// the client gave up.
func New(clk clock.PassiveClock, requestTimeout time.Duration) *Table {
	return &Table{requestTimeout: requestTimeout, records: newRecords(clk)}
}

// Change has the effects of a step of the Table.
type Change struct {
	Nodes []*Node // their reservations are others than before
	Soon  []*Node // the scheduler's snapshot of them changes, or soon will
	Freed bool    // devices came free that kept some pod waiting
	Left  bool    // something is free again, unlike after a pod is bound with its assumed allocation
}

// Present returns the pod's reservation of its present attempt on a node, or nil.
func (t *Table) Present(uid types.UID, node string) *Reservation {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.presentOn(uid, node)
}

// IsPresent reports whether the attempt of r is in progress or planned. r may be nil.
func (t *Table) IsPresent(r *Reservation) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return r.present()
}

// Add records a reservation. again is the doubtful reservation that is taken again, or nil. r is not
// added if the pod ended a short time ago: no event would end it.
func (t *Table) Add(r, again *Reservation) (c Change, added bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.clock.Now()
	if t.gone.lately(r.UID, now) {
		return c, false
	}
	r.phase, r.since = Reserved, now
	if again != nil {
		r.times = again.times + 1
	}
	t.insert(r)
	r.Node.publish()
	c.Nodes = append(c.Nodes, r.Node)
	return c, true
}

// Listed is one reservation with its state.
type Listed struct {
	*Reservation

	Phase   Phase
	Since   time.Time // start of the phase
	Writing bool      // its writes are in progress
}

// List returns all reservations, and the places, which have no Allocation. Those of one pod are in the
// order in which they were made.
func (t *Table) List() []Listed {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []Listed
	for _, rs := range t.byPod {
		for _, r := range rs {
			out = append(out, Listed{r, r.phase, r.since, r.writing})
		}
	}
	for _, r := range t.places {
		out = append(out, Listed{r, Planned, r.since, false})
	}
	return out
}
