// SPDX-License-Identifier: Apache-2.0

// Package candidates lists the nodes that a scheduling cycle looks at: those that are best
// for the pod, or all of them once a list was refused. The list is advice, and Filter
// judges each node again. What is used on a node is asked of its Source.
//
// Its one invariant: the index has what a node was at the generation of its NodeInfo and the
// revision of its Node that stand beside it.
//
// Locks, left before right. Each guards fields of its own type, and Index.mu the position
// of each Node too:
//
//	Index.mu ► those of a Source, and of who finds a Node ► changes.mu
//	Retries.mu, with no other
//
// None is held while the scheduling queue is asked (Nominator) or told (Activate): it has
// locks of its own.
package candidates
