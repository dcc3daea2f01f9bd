// SPDX-License-Identifier: Apache-2.0

// Package gangstate keeps the gangs of a process: their members, from the informers, and the progress of
// each gang's attempt to be placed. It plans the places of members.
//
// Its one invariant: an attempt that is not committed ends for all of its members, and none begins while
// a member of the last one is still in flight.
//
// It calls nothing of the framework: Scheduler is the interface to it. Gangs is the façade: Attempts for
// the cycles of members, Holds for the places kept for gangs, Diagnosis for people. Below it, without a
// lock, are queue, nodeHolds, which reads it, and attempt; stepper has the one lock. Planner computes the
// supply of nodes (supply.go), and finds victims (preempt.go, of the units of units.go).
//
// Locks, left before right; none is held while an effect is carried out:
//
//	the scheduling queue's lock (PreEnqueue) ► Gangs.mu ► those of waking that callers need not know
package gangstate
