// SPDX-License-Identifier: Apache-2.0

// Package gangstate keeps the gangs of a process: their members, as the informers have them,
// and how far each gang's attempt to be placed has come. It plans where members go.
//
// Its one invariant: an attempt that is not committed ends for all of its members, and none
// begins before nobody of the last one is on the way any more.
//
// It calls nothing of the framework: Scheduler is the interface to it. Gangs is the façade: Attempts for the cycles
// of members, Holds for what is kept for gangs, Diagnosis for people. Below it, without a lock, are queue, nodeHolds,
// which asks it, and attempt; stepper has the one lock. Planner asks nodes (supply.go), and finds who has to go
// (preempt.go, of the units of units.go).
//
// Locks, left before right; none is held while an effect is carried out:
//
//	the scheduling queue's lock (PreEnqueue) ► Gangs.mu ► those of waking that callers need not know
package gangstate
