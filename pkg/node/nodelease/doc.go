// SPDX-License-Identifier: Apache-2.0

// Package nodelease writes and judges the Leases by which the programs of a node say that
// what they published about it is current: the exporter's and the node agent's.
//
// Its one invariant: a Lease belongs to the Node by owner reference and carries the
// Node's UID there, so that it neither outlives the Node nor speaks for another.
//
// When to renew is the programs' decision, and what follows from a Lease that ran out is
// the scheduler's.
package nodelease
