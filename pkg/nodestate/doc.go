// SPDX-License-Identifier: Apache-2.0

// Package nodestate is the scheduler's view of which GPUs are used and which may be
// chosen: it keeps the reservations. It is a façade over pure packages and caches; one State
// serves every profile and both plugins of a process.
//
// Its one invariant: at every moment a GPU that a live pod holds, or has been
// promised, is visible in at least one of the table of reservations, the pod's own
// annotation, or the node agent's record; so no device is in two pods.
//
// What it asks others: package topologies what is known of a node's devices, pkg/usage
// what is used of them, pkg/placement which GPUs a pod gets there, package candidates which
// nodes a cycle looks at, and package waking which waiting pods are tried again.
//
// It does not know scheduler statuses, which are the plugins' part. A choice is written
// only when a plugin's PreBind or Bind asks for it. On its own the package reads pods
// whose write had no clear answer (doubts.go), and writes annotations anew where such a
// write was carried out late (correction.go).
//
// Locks, left before right:
//
//	candidates.Index.mu ► State.mu ► parsedAllocations.mu
//	State.mu, topologies.Cache.mu ► the locks of nodelease.Table and nvtopo.Registry
//	any of these ► candidates' changes.mu; waking's changes.mu
//	the scheduling queue's lock (PreEnqueue) ► waking's list.mu
//	State.syncMu, profiles.mu, leaderView.mu: with no other
//
// State.mu guards both kinds of reservations, of each cell too, and which pods have just
// gone. No lock is held in a call of the scheduling queue or of the waiting pods' list of
// the framework: Activate, AddNominatedPod, NominatedPodsForNode, IterateOverWaitingPods,
// Allow and Reject. What is nominated is asked before, and handed in.
package nodestate
