// SPDX-License-Identifier: Apache-2.0

// Package reservations is the table of assumed allocations, from the choice until the pod shows it, and
// of nominated allocations. Each step returns its effects as a [Change]; the package wakes no pods, reads
// no API and knows no scheduler.
//
// Its one invariant: an allocation leaves the table only when another source shows its devices as used,
// or when it is certain that the pod does not have them and will not get them.
//
// Table.mu is its only lock. It guards the fields of Table, Reservation and Node that are marked so.
// Under it no function of other packages is called but the clock, so no lock is taken after it. The
// reservations of one node are read without it: see [Node.View].
package reservations
