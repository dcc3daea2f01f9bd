// SPDX-License-Identifier: Apache-2.0

package reservations

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

// The steps of one attempt to bind a pod, in order. Each does nothing if the attempt has ended, because
// the pod was bound or has ended meanwhile. r may be nil, for an attempt without an allocation.

// Announce marks that the binding proceeds to its writes.
func (t *Table) Announce(r *Reservation) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r.present() {
		t.setWriting(r, true)
	}
}

// Pending returns the allocation if its annotations still have to be written, else nil.
func (t *Table) Pending(r *Reservation) *allocation.Allocation {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r.present() && !r.written {
		return r.Allocation
	}
	return nil
}

// BindingBegan marks that the first write of the allocation, the PATCH or the Binding, may now happen:
// from here on the API server may carry it out.
func (t *Table) BindingBegan(r *Reservation) { t.changePhase(r, Reserved, Binding) }

// BindingRefused marks that the API server certainly did not carry out the write, so nothing was bound.
func (t *Table) BindingRefused(r *Reservation) { t.changePhase(r, Binding, Reserved) }

func (t *Table) changePhase(r *Reservation, from, to Phase) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r.present() && r.phase == from {
		t.setPhase(r, to)
	}
}

// Written marks the annotations as written on the pod.
func (t *Table) Written(r *Reservation) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r.present() {
		r.written = true
	}
}

// WriteEnded marks that the PATCH of the allocation was sent once and is done, and that no Binding is
// sent before the next call of BindingBegan: if the attempt ends before that, none of its writes can come
// late. It has no effect while the outcome of an earlier attempt is unknown, whose Binding may come late,
// to a pod that carries this allocation.
func (t *Table) WriteEnded(r *Reservation) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r.present() && r.phase == Binding && len(t.byPod[r.UID]) == 1 {
		t.setPhase(r, Reserved)
	}
}

// Unreserve takes back a reservation that Add recorded. If binding had begun, the outcome is unknown: the
// reservation stays, doubtful, until a live read later than the request timeout decides. But an earlier
// attempt may have bound the pod already, while this one was reserved: that decides at once. bound is the
// pod as the informer has it now if it is bound, else nil. A kept reservation returns to planned, with
// its devices, if certainly nothing was carried out.
func (t *Table) Unreserve(r *Reservation, bound *Bound) (c Change) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !r.present() {
		return c
	}
	if r.phase == Binding {
		if bound != nil {
			t.decidedBy(r, bound, &c)
		}
		if r.phase == Binding {
			t.doubt(r, &c)
		}
		return c
	}
	if r.written {
		t.carrying[r.UID] = struct{}{}
	}
	t.retriedInVain(r)
	if r.kept && bound == nil {
		r.written = false // it is written again, even if the pod changes meanwhile
		t.setPhase(r, Planned)
	} else {
		c.Freed = r.phase == Planned // it kept others waiting, and the scheduler forgets no pod because of it
		t.drop(r, &c)
	}
	c.Soon = append(c.Soon, r.Node) // the scheduler's cache forgets the pod after this
	c.Left = true
	return c
}

// Earlier reports whether earlier attempts may still be carried out, or have left their allocation on the
// pod. r is the reservation of the present attempt, or nil.
func (t *Table) Earlier(uid types.UID, r *Reservation) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	others := len(t.byPod[uid])
	if r.present() {
		others--
	}
	_, carries := t.carrying[uid]
	return carries || others > 0
}

// Writing returns the number of reservations whose writes are in progress.
func (t *Table) Writing() int64 { return t.writing.Load() }

// Arrived returns a channel that receives after Writing has decreased.
func (t *Table) Arrived() <-chan struct{} { return t.arrived }

// setWriting sets whether the reservation's writes are in progress. The caller holds Table.mu.
func (t *records) setWriting(r *Reservation, writing bool) {
	switch {
	case r.writing == writing:
		return
	case writing:
		t.writing.Add(1)
	default:
		t.writing.Add(-1)
		select {
		case t.arrived <- struct{}{}:
		default:
		}
	}
	r.writing = writing
}
