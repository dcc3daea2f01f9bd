// SPDX-License-Identifier: Apache-2.0

// Package waking keeps the pods with GPUs that no node took, and says which of them to try
// again, and when: those that a node would now take. It also wakes all other pods after
// changes that no cluster event announces.
//
// Its one invariant: a waiting pod that a node would take is woken, or left to the scheduling
// queue. What it knows of a node may be a moment old, so it wakes pods and decides nothing:
// Filter judges.
//
// Locks. Each guards fields of its own type, and changes.mu the changes of each Node too:
//
//	the scheduling queue's lock (PreEnqueue, in Gated) ► list.mu
//	any lock of the callers of Changed, LeaseBack and WakeOthers ► changes.mu
//
// Neither is held while another is taken, while a Source or the Cluster is asked, or while the
// queue is told whom to try. What only the goroutine of Run uses has no lock.
package waking
