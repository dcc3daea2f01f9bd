// SPDX-License-Identifier: Apache-2.0

// Package fabricview has the current fabric according to the labels of the nodes and the ClusterTopology:
// one tree for the whole process, rebuilt off the scheduling cycle when the set of nodes, one of the
// labels or the ClusterTopology's spec changes.
//
// Its one invariant: a View never changes, so a planner takes one and keeps to it.
//
// Views.mu guards the callbacks for a new View. It is not held while they are called.
package fabricview
