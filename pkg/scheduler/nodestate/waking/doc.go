// SPDX-License-Identifier: Apache-2.0

// Package waking keeps the pods with GPUs that fit no node, and selects which of them to try again, and
// when: those that a node would now take. It also wakes all other pods after changes that no cluster
// event reports.
//
// Its one invariant: a waiting pod that a node would take is woken, or left to the scheduling queue. Its
// view of a node may be a moment old, so it only wakes pods: Filter decides.
//
// Locks. Each guards fields of its own type, and changes.mu the changes of each Node too:
//
//	the scheduling queue's lock (PreEnqueue, in Gated) ► list.mu
//	any lock of the callers of Changed, LeaseBack and WakeOthers ► changes.mu
//
// Neither is held while another is taken, while a Source or the Cluster is called, or while pods are
// activated in the queue. Fields that only the goroutine of Run uses have no lock.
package waking
