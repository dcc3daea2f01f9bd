// SPDX-License-Identifier: Apache-2.0

// Package fabricview is the fabric as the labels of the nodes and the ClusterTopology of the
// cluster have it now: one tree for the whole process, made anew off the scheduling cycle when
// the set of nodes, one of the labels or the ClusterTopology's spec changes.
//
// Its one invariant: a View never changes, so whoever plans takes one and keeps to it.
//
// Views.mu guards who is told of a new View. It is not held while they are told.
package fabricview
