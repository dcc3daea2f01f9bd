// SPDX-License-Identifier: Apache-2.0

package reservations

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// Table keeps all reservations and nominated reservations of a process. Make one with New.
//
// Each method is one step: nobody sees the half of it. These steps have to be one:
//
//   - Add, with the question whether the pod has gone. PodGone ends all reservations of a pod
//     and remembers that it went; one that came in between would never end.
//   - AddAll, with the same question of each pod: a gang is planned as a whole or not at all.
//   - Begin, with the phase: EndPlanned drops what no cycle has begun to use, and nothing else.
//   - PodBound and PodGone, over all reservations of the pod and what is kept for it: what
//     settles one of them settles the others.
//   - Unreserve, with the phase: nothing may begin between the question whether a write was
//     under way and the answer that it is in doubt, or that nothing is left.
//   - Decide, with the phase and with the pod's other reservations: an event may have settled
//     it after the pod was read.
//   - ToResolve, with the number of those that are being read.
//   - ReserveNominated, with the end of what was kept for the pod before.
//
// Choosing devices and recording the choice has to be one step, too. That is up to the caller,
// who lets nobody else call Add in between. Other steps may come in between: they only take
// reservations away, so what was chosen is still free.
//
// Reading a node needs no lock: see Node.View. A View has the whole node at one moment. It is
// replaced in the step that changes the node, and the caller gets the Change after that. So
// whoever is told of a change finds it in the View.
type Table struct {
	requestTimeout time.Duration
	mu             sync.Mutex // guards records, and of Reservation and Node what says so
	records
}

// New returns an empty table. requestTimeout is how long the API server may still carry out
// a write that the client gave up on.
func New(clk clock.PassiveClock, requestTimeout time.Duration) *Table {
	return &Table{requestTimeout: requestTimeout, records: newRecords(clk)}
}

// Change is what a step of the Table changed.
type Change struct {
	Nodes []*Node // other things are reserved there than before
	Soon  []*Node // the scheduler's snapshot of them changes, or soon will
	Freed bool    // devices came free that kept some pod waiting
	Left  bool    // something is not taken any more. Of a pod that is bound with its choice all is
}

// Present returns the pod's reservation on a node for the attempt that goes on, or nil.
func (t *Table) Present(uid types.UID, node string) *Reservation {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.presentOn(uid, node)
}

// IsPresent reports whether the attempt goes on that r was made for. r may be nil.
func (t *Table) IsPresent(r *Reservation) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return r.present()
}

// Add records a choice. again, if not nil, is the one in doubt that is taken again. It is not
// added if the pod went a short time ago: no event would end it.
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
	Since   time.Time // of the phase
	Writing bool      // on its way to be bound
}

// List returns all reservations, and the places, which have no Allocation. Those of one pod
// stand in the order in which they were made.
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
