// SPDX-License-Identifier: Apache-2.0

// Package candidates lists the nodes that a scheduling cycle considers: those that are best for the pod,
// or all of them once a list was refused. The list is advice, and Filter checks each node again. A Source
// provides the usage of a node.
//
// Its one invariant: each entry of the index is the state of a node at the generation of its NodeInfo and
// the revision of its Node that are stored with it.
//
// Locks, left before right. Each guards fields of its own type, and Index.mu the position of each Node
// too:
//
//	Index.mu ► those of a Source, and of the function that finds a Node ► changes.mu
//	Retries.mu, with no other
//
// None is held while the scheduling queue is read (Nominator) or called (Activate): it has locks of its
// own.
package candidates
