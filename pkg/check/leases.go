// SPDX-License-Identifier: Apache-2.0

package check

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/nodelease"
)

// fresh reports whether a Lease has not expired.
func fresh(l *coordinationv1.Lease, now time.Time) bool {
	return l != nil && l.Spec.RenewTime != nil && l.Spec.LeaseDurationSeconds != nil &&
		now.Before(nodelease.Renewed(l).Add(time.Duration(*l.Spec.LeaseDurationSeconds)*time.Second))
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
