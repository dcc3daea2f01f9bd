// SPDX-License-Identifier: Apache-2.0

// Package reservations is the table of choices that are on their way to their pods, and of
// those that are kept for nominated pods. It says by return values ([Change]) what a step
// changed; it wakes nobody, reads no API and knows no scheduler.
//
// Its one invariant: a choice leaves the table only when something else shows its devices as
// used, or when it is certain that the pod does not have them and will not get them.
//
// Table.mu is its only lock. It guards the fields of Table, Reservation and Node that say so.
// No function of others is called under it but the clock, so no lock is ever behind it. What
// is reserved on one node is read without it: see [Node.View].
package reservations
