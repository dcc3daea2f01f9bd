// SPDX-License-Identifier: Apache-2.0

// Package nodelease renews the Leases by which the programs of a node say that what
// they published about it is current: the exporter's and the node agent's.
//
// Its one invariant: a Lease belongs to the Node by owner reference and carries the
// Node's UID there, so that it neither outlives the Node nor speaks for another.
//
// When to renew is the programs' decision. The scheduler reads the Leases with an
// informer of its own, in package nodestate.
package nodelease
