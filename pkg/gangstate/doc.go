// SPDX-License-Identifier: Apache-2.0

// Package gangstate keeps the gangs of a process: their members, as the informers have them,
// and how far each gang's attempt to be placed has come. It plans where members go.
//
// Its one invariant: an attempt that is not committed ends for all of its members, and none
// begins before nobody of the last one is on the way any more.
//
// It calls nothing of the framework. attempt.go is the state machine of one attempt; gangs.go
// is the façade with the one lock; plan.go asks pkg/nvtopo/fabric, and supply.go the nodes;
// preempt.go finds who has to go for a gang, of the units of units.go, and claim.go keeps what is
// held until they are gone; drain.go keeps places free, but for what
// heldplaces.go says is held there; rollback.go finds gangs that stay partly bound.
//
// Locks, left before right; none is held while an effect is carried out:
//
//	the scheduling queue's lock (PreEnqueue) ► Gangs.mu ► those of waking that callers need not know
package gangstate
