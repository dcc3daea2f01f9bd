// SPDX-License-Identifier: Apache-2.0

package reservations

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// Phase is where a reservation is on its way:
//
//	AddAll ──► planned ──EndPlanned──► dropped
//	              │ Begin
//	              ▼
//	Add ──► reserved ──PreBind/Bind began──► binding ──Unreserve──► doubtful ──live GET shows no node──► dropped
//	           │ Unreserve                      │ store shows it        │ store shows it
//	           ▼                                ▼                       ▼
//	        dropped                          confirmed ◄────────────────┘
//
// back from binding to reserved when nothing of the attempt is under way any more (a
// refusal, or the end of the PATCH before the Binding begins),
// from reserved to planned instead of dropped if it is kept (Keep),
// and from any phase to void when the pod is gone or bound with another choice.
// Confirmed and void ones are dropped once a cycle's snapshot can replace them.
type Phase uint8

// The phases of a reservation.
const (
	// Planned is a place in the plan of a gang, whose pod has not had its cycle yet: nothing
	// is written, nor will be in this phase.
	Planned Phase = iota
	Reserved
	Binding
	Doubtful
	Confirmed
	Void
)

// String is the phase as metrics and the debug endpoint call it.
func (p Phase) String() string {
	return [...]string{"planned", "reserved", "binding", "doubtful", "confirmed", "void"}[p]
}

// settled reservations only wait until a snapshot can replace them.
func (p Phase) settled() bool { return p >= Confirmed }

// Reservation is one choice on its way to its pod. A pod may have several: doubtful ones of
// earlier attempts beside the present one, all in the table until it is known where the pod
// went. The exported fields never change.
type Reservation struct {
	UID             types.UID
	Namespace, Name string
	Node            *Node
	Allocation      *allocation.Allocation
	Request         *podrequest.Request
	Priority        int32 // of a planned one's gang: it yields to pods of a higher one
	// Awaits: pods that are to go have the devices, too, until they are gone. No cycle may begin
	// to use it; whoever planned it ends it and plans anew.
	Awaits bool

	// Guarded by Table.mu.
	phase   Phase
	since   time.Time // of the phase
	written bool      // the annotations are on the pod
	kept    bool      // it is planned again if its attempt ends and certainly wrote nothing
	writing bool      // one of Table.writing
	times   int       // how many attempts before had the same choice
	reading bool      // its pod is being read; one of Table.resolving
	read    time.Time // when that began last
	// version of the bound pod that settled it; empty if the pod never was bound.
	version string
}

// present reports whether the attempt goes on that r was made for, or is to come. It needs
// Table.mu.
func (r *Reservation) present() bool {
	return r != nil && (r.phase == Planned || r.phase == Reserved || r.phase == Binding)
}

// Bound is a pod that is bound, as the informer or a live read shows it.
type Bound struct {
	UID        types.UID
	Node       string
	Version    string                 // its resource version
	Allocation *allocation.Allocation // nil if it carries none that counts
}
