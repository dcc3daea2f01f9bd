// SPDX-License-Identifier: Apache-2.0

package reservations

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// Phase is the state of a reservation:
//
//	AddAll ──► planned ──EndPlanned──► dropped
//	              │ Begin
//	              ▼
//	Add ──► reserved ──PreBind/Bind began──► binding ──Unreserve──► doubtful ──live GET shows no node──► dropped
//	           │ Unreserve                      │ store shows it        │ store shows it
//	           ▼                                ▼                       ▼
//	        dropped                          confirmed ◄────────────────┘
//
// It returns from binding to reserved when no write of the attempt is in flight any more (a refusal, or
// the end of the PATCH before the Binding begins), from reserved to planned instead of dropped if it is
// kept (Keep), and goes from any phase to void when the pod is gone or bound with another allocation.
// Confirmed and void ones are dropped once a cycle's snapshot can replace them. In a doubtful one the
// outcome of a write is unknown.
type Phase uint8

// The phases of a reservation.
const (
	// Planned is a place in the plan of a gang, whose pod has not had its cycle yet: nothing is written, nor
	// will be in this phase.
	Planned Phase = iota
	Reserved
	Binding
	Doubtful
	Confirmed
	Void
)

// String returns the name of the phase in metrics and at the debug endpoint.
func (p Phase) String() string {
	return [...]string{"planned", "reserved", "binding", "doubtful", "confirmed", "void"}[p]
}

// settled reports whether the reservation only waits until a snapshot can replace it.
func (p Phase) settled() bool { return p >= Confirmed }

// Reservation is one assumed allocation of a pod. A pod may have several: doubtful ones of earlier
// attempts beside the present one, all in the table until it is known where the pod was bound. The
// exported fields never change.
type Reservation struct {
	UID             types.UID
	Namespace, Name string
	Node            *Node
	Allocation      *allocation.Allocation
	Request         *podrequest.Request
	Priority        int32 // of a planned one's gang: it yields to pods of a higher priority
	// Awaits: until some pods have ended, they have these devices as well. No cycle may begin to use it; its
	// planner ends it and plans again.
	Awaits bool

	// Guarded by Table.mu.
	phase   Phase
	since   time.Time // start of the phase
	written bool      // the annotations are on the pod
	kept    bool      // it is planned again if its attempt ends and certainly wrote nothing
	writing bool      // it is counted in Table.writing
	times   int       // number of earlier attempts with the same allocation
	reading bool      // its pod is being read; counted in Table.resolving
	read    time.Time // start of the last read
	// resourceVersion of the bound pod that settled it; empty if the pod never was bound
	version string
}

// present reports whether the attempt of r is in progress or planned. The caller holds Table.mu.
func (r *Reservation) present() bool {
	return r != nil && (r.phase == Planned || r.phase == Reserved || r.phase == Binding)
}

// Bound is a bound pod, from the informer or a live read.
type Bound struct {
	UID        types.UID
	Node       string
	Version    string                 // its resource version
	Allocation *allocation.Allocation // nil if it carries none that is valid for it
}
