// SPDX-License-Identifier: Apache-2.0

package check

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Clocks of nodes are not trusted, as in the scheduler: renewTime comes from the clock
// of the node that renews. The scheduler uses the time when it saw a renewal. A program
// that looks only once uses the time when the API server carried out the renewal.

// fresh reports whether a Lease has not expired.
func fresh(l *coordinationv1.Lease, now time.Time) bool {
	return l != nil && l.Spec.RenewTime != nil && l.Spec.LeaseDurationSeconds != nil &&
		now.Before(renewed(l).Add(time.Duration(*l.Spec.LeaseDurationSeconds)*time.Second))
}

// speaksFor reports whether a Lease has not expired and belongs to a program on this
// very node. A Lease of an earlier node with the same name says nothing about this one.
// A Lease without an owner counts.
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

// renewed is when a Lease was last renewed, by the API server's clock if possible. The
// programs on nodes renew with an apply that always changes renewTime, so the API
// server records the time of it, in whole seconds. If somebody updates the Lease by
// hand, the update takes the field from the program's apply, and then the value of
// renewTime counts.
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

// Moment is when the World was read, as far as it shows that. It is the last write of a
// Lease by the API server's clock; without managed fields it is the last renewTime of a
// Lease. If a scheduler's state is later, its time counts. It is zero if there is none
// of these.
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
