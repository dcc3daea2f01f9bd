// SPDX-License-Identifier: Apache-2.0

package reservations

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

const (
	// maxResolving bounds how many pods are read at a time: after an API server was away for a minute, all
	// attempts of that minute have an unknown outcome.
	maxResolving = 16
	// maxAgain is how many attempts in a row send a pod to the node of its allocation with unknown outcome.
	// Binding it there may be impossible, and other nodes may be free.
	maxAgain = 4
)

// doubt makes a reservation doubtful and drops the pod's earlier doubtful ones with the same allocation.
// The caller holds Table.mu.
func (t *records) doubt(r *Reservation, c *Change) {
	t.setPhase(r, Doubtful)
	for _, o := range slices.Clone(t.byPod[r.UID]) {
		if o != r && o.phase == Doubtful && o.Allocation == r.Allocation {
			t.drop(o, c)
		}
	}
}

// retriedInVain counts an attempt that ended before its own writes as one more attempt with the
// allocation that an earlier attempt left doubtful. The caller holds Table.mu.
func (t *records) retriedInVain(r *Reservation) {
	for _, o := range t.byPod[r.UID] {
		if o.phase == Doubtful && o.Allocation == r.Allocation {
			o.times = max(o.times, r.times)
		}
	}
}

// TriedOn returns the node of the pod's last doubtful allocation; "" if there is none or it has failed
// too often.
func (t *Table) TriedOn(uid types.UID) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return triedOn(t.byPod[uid])
}

func triedOn(reservations []*Reservation) string {
	for _, r := range slices.Backward(reservations) {
		if r.phase == Doubtful && r.times < maxAgain {
			return r.Node.name
		}
	}
	return ""
}

// Attempts returns the pods whose binding is in progress, and TriedOn of all pods for which it is not
// empty.
func (t *Table) Attempts() (binding map[types.UID]bool, again map[types.UID]string) {
	binding, again = map[types.UID]bool{}, map[types.UID]string{}
	t.mu.Lock()
	defer t.mu.Unlock()
	for uid, reservations := range t.byPod {
		if slices.ContainsFunc(reservations, (*Reservation).present) {
			binding[uid] = true
		}
		if node := triedOn(reservations); node != "" {
			again[uid] = node
		}
	}
	return binding, again
}

// ToResolve returns the doubtful reservations whose pods are to be read now: those for which a read is
// later than any write the API server may still carry out, and which are not being read. Those that were
// read longest ago come first, because some reads may never be answered. Call Resolved for each after its
// read.
func (t *Table) ToResolve() []*Reservation {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.clock.Now()
	var out []*Reservation
	for _, rs := range t.byPod {
		for _, r := range rs {
			if r.phase == Doubtful && !r.reading && now.Sub(r.since) > t.requestTimeout {
				out = append(out, r)
			}
		}
	}
	slices.SortFunc(out, func(a, b *Reservation) int { return a.read.Compare(b.read) })
	out = out[:min(len(out), maxResolving-t.resolving)]
	for _, r := range out {
		r.reading, r.read = true, now
	}
	t.resolving += len(out)
	return out
}

// Resolved marks that the read of a reservation's pod has ended, with any result.
func (t *Table) Resolved(r *Reservation) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r.reading = false
	t.resolving--
}

// Decide drops a doubtful reservation after a read requested by ToResolve found the pod gone, or without
// a node. carries is whether the pod exists and carries an allocation, and choice is that allocation if
// it can be parsed. The reservation stays if an event has settled it meanwhile, or if the pod may yet be
// bound with it: the pod carries it from a PATCH that came late, while a later attempt has done its own
// PATCH and goes on to bind the pod.
func (t *Table) Decide(r *Reservation, carries bool, choice *allocation.Allocation) (c Change) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r.phase != Doubtful || choice != nil && len(t.byPod[r.UID]) > 1 && choice.Equal(r.Allocation) {
		return c
	}
	if carries {
		t.carrying[r.UID] = struct{}{} // the informer may not show so for a while
	}
	t.drop(r, &c)
	c.Freed = true
	return c
}

// Undisputed reports whether r is doubtful and no other allocation of the pod was for this node. A pod
// that is bound to the node by this scheduler then has this allocation.
func (t *Table) Undisputed(r *Reservation) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return r.phase == Doubtful && !slices.ContainsFunc(t.byPod[r.UID], func(o *Reservation) bool {
		return o != r && o.Node == r.Node && !o.Allocation.Equal(r.Allocation)
	})
}
