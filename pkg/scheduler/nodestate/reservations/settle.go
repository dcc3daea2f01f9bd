// SPDX-License-Identifier: Apache-2.0

package reservations

import "k8s.io/apimachinery/pkg/types"

// PodThere, PodBound and PodGone report events of a pod to the table. They settle its reservations and
// drop none: the running cycle's snapshot may still be older. Settled and Drop are for the start of a
// cycle.

// PodThere records that the informer has the pod.
func (t *Table) PodThere(uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.gone.back(uid)
}

// Knows reports whether the table has an entry of any kind for a pod.
func (t *Table) Knows(uid types.UID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, carries := t.carrying[uid]
	return carries || t.nominated[uid] != nil || len(t.byPod[uid]) > 0 || t.places[uid] != nil
}

// PodBound records that a pod is bound.
func (t *Table) PodBound(b *Bound) (c Change) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.carrying, b.UID)
	t.leave(b.UID)
	if n := t.endNominated(b.UID, &c); n != nil && !n.took(b.Node, b.Allocation) {
		c.Freed = true
	}
	for _, r := range t.byPod[b.UID] {
		if r.Node.name == b.Node {
			t.setWriting(r, false) // whether or not this allocation was bound
		}
		t.decidedBy(r, b, &c)
	}
	return c
}

// decidedBy settles a reservation of a bound pod, if the binding decides it. A pod is bound once, and the
// PATCH of an attempt is refused from then on. So the binding voids every reservation with another
// allocation whose own writes may have begun, and every planned one: nothing of it was written, and no
// cycle will end it. The caller holds Table.mu.
func (t *records) decidedBy(r *Reservation, b *Bound, c *Change) {
	switch {
	case r.phase.settled():
	case b.Allocation != nil && b.Allocation.Equal(r.Allocation):
		t.settle(r, Confirmed, c)
		r.version = b.Version
	case r.phase == Planned, r.phase != Reserved && (b.Allocation != nil || r.Node.name != b.Node):
		t.settle(r, Void, c)
		r.version = b.Version
		c.Freed = true
	}
}

// PodGone records that the informer no longer has the pod: it was deleted, or has finished (the
// scheduler's informer drops finished pods). The scheduler's own handler may have woken another pod
// earlier, which then still saw the reservation.
func (t *Table) PodGone(uid types.UID) (c Change) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.Freed = t.endNominated(uid, &c) != nil
	t.gone.add(uid, t.clock.Now())
	delete(t.carrying, uid)
	t.leave(uid)
	for _, r := range t.byPod[uid] {
		c.Freed = c.Freed || r.phase != Void
		t.settle(r, Void, &c)
	}
	return c
}

// Gone reports whether PodGone was called for a pod a short time ago, and PodThere not since.
func (t *Table) Gone(uid types.UID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.gone.lately(uid, t.clock.Now())
}

// settle moves a reservation to a settled phase. The caller holds Table.mu.
func (t *records) settle(r *Reservation, p Phase, c *Change) {
	t.settled[r] = struct{}{}
	t.setPhase(r, p)
	c.Soon = append(c.Soon, r.Node) // which need not be the pod's node
	c.Left = c.Left || p == Void
}

// Settled is a reservation that waits until a snapshot can replace it.
type Settled struct {
	*Reservation

	Void bool // else it is confirmed
	// Version is the resourceVersion of the bound pod that settled it; empty if the pod never was bound.
	Version string
}

// Settled returns the reservations that are confirmed or void.
func (t *Table) Settled() []Settled {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.settled) == 0 {
		return nil
	}
	out := make([]Settled, 0, len(t.settled))
	for r := range t.settled {
		out = append(out, Settled{r, r.phase == Void, r.version})
	}
	return out
}

// Drop forgets settled reservations. Call it once the pods that replace them can be read.
func (t *Table) Drop(settled []Settled) (c Change) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range settled {
		if _, ok := t.settled[s.Reservation]; ok {
			t.drop(s.Reservation, &c)
		}
	}
	return c
}
