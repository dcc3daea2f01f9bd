// SPDX-License-Identifier: Apache-2.0

// Package nodelease writes and evaluates the Leases by which the exporter and the node agent declare that
// their published state of a node is current.
//
// Invariant: a Lease belongs to the Node by owner reference and carries the Node's UID there, so that it
// neither outlives the Node nor is valid for another.
//
// The programs decide when to renew; the scheduler handles expired Leases.
package nodelease
