// SPDX-License-Identifier: Apache-2.0

// Package gangstate keeps the gangs of a process: their members, as the informers have them,
// and how far each gang's attempt to be placed has come. It plans where members go.
//
// Its one invariant: an attempt that is not committed ends for all of its members, and none
// begins before nobody of the last one is on the way any more.
//
// It calls nothing of the framework: what it needs of the scheduler is the interface Scheduler. Gangs is the
// façade, of Attempts for the cycles of members, Holds for what is kept for gangs, and Diagnosis for people.
// Each noun below it is a type that has no lock and knows only those that come later here:
//
//	stepper    takes a step under the lock, and carries out its effects without it; claim.go, rollback.go, tell.go
//	nodeHolds  what is kept on nodes for gangs that have waited for long; a drain is for one gang
//	queue      who came, in what order gangs and members are tried, and whose turn it is
//	attempt    the state machine of one attempt
//
// Planner finds places (plan.go), asks nodes (supply.go), and who has to go (preempt.go, of the units of units.go).
//
// Locks, left before right; none is held while an effect is carried out:
//
//	the scheduling queue's lock (PreEnqueue) ► Gangs.mu ► those of waking that callers need not know
package gangstate
