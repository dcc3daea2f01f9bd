// SPDX-License-Identifier: Apache-2.0

// Package fairsort is the FairSort plugin. It orders the scheduling queue by priority, as PrioritySort
// does, and pods of one priority so that their namespaces take turns: a pod does not wait for all that
// another namespace made before.
//
// Its one invariant: the k-th pod of its namespace and priority in the queue is tried after at most k+1
// pods of that priority of each other namespace.
//
// Locks. The scheduling queue calls Less under its own lock:
//
//	the scheduling queue's lock ► Turns.mu
package fairsort
