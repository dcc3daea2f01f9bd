// SPDX-License-Identifier: Apache-2.0

package check

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
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
	return fresh(l, now) && belongsTo(l, node)
}

// belongsTo reports whether a Lease is of a program on this very node, as far as is known.
func belongsTo(l *coordinationv1.Lease, node types.UID) bool {
	for _, o := range l.OwnerReferences {
		if o.Kind == "Node" {
			return o.UID == node
		}
	}
	return true
}
