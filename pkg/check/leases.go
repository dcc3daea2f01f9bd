// SPDX-License-Identifier: Apache-2.0

package check

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Clocks of nodes are not trusted, as the scheduler does not trust them: renewTime is
// of the clock of the node that renews. The scheduler goes by when it saw a renewal;
// who looks once goes by when the API server carried it out.

// fresh reports whether a Lease has not run out.
func fresh(l *coordinationv1.Lease, now time.Time) bool {
	return l != nil && l.Spec.RenewTime != nil && l.Spec.LeaseDurationSeconds != nil &&
		now.Before(renewed(l).Add(time.Duration(*l.Spec.LeaseDurationSeconds)*time.Second))
}

// speaksFor reports whether a Lease has not run out and is of a program on this very
// node, as far as it says: one of an earlier node of the name tells nothing of it.
func speaksFor(l *coordinationv1.Lease, node types.UID, now time.Time) bool {
	if !fresh(l, now) {
		return false
	}
	for _, o := range l.OwnerReferences {
		if o.Kind == "Node" {
			return o.UID == node
		}
	}
	return true
}

// renewed is when a Lease was last renewed, by the API server's clock where it tells.
// The programs of nodes renew by an apply, which always changes renewTime, so that the
// API server writes down the time, in whole seconds. An update that somebody makes by
// hand is no renewal: it takes the field from the program, and what it says is taken.
func renewed(l *coordinationv1.Lease) time.Time {
	var t time.Time
	for i := range l.ManagedFields {
		if m := &l.ManagedFields[i]; m.Operation == metav1.ManagedFieldsOperationApply && owns(m, "f:renewTime") {
			t = later(t, m.Time)
		}
	}
	if t.IsZero() {
		t = l.Spec.RenewTime.Time
	}
	return t
}

// Moment is when the World was read, as far as it says itself: the last write of a
// Lease by the API server's clock, or the last renewal as the Leases say themselves if
// their managed fields are not there; or the time of a scheduler's state, if that is
// later; zero if there is none of these.
func (w *World) Moment() time.Time {
	var written, said time.Time
	for i := range w.Leases {
		l := &w.Leases[i]
		for j := range l.ManagedFields {
			written = later(written, l.ManagedFields[j].Time)
		}
		if r := l.Spec.RenewTime; r != nil && r.After(said) {
			said = r.Time
		}
	}
	t := written
	if t.IsZero() {
		t = said
	}
	for i := range w.Schedulers {
		if at := w.Schedulers[i].At; at.After(t) {
			t = at
		}
	}
	return t
}
