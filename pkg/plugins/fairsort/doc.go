// SPDX-License-Identifier: Apache-2.0

// Package fairsort is the FairSort plugin. It orders the scheduling queue by priority, as PrioritySort
// does, and pods of one priority so that their namespaces take turns: a pod does not wait for all that
// another namespace made before.
//
// Pods that wait are in lines: those of one namespace and priority that were never tried, and those that
// were. Its one invariant: the k-th pod of its line is tried after at most k+1 pods of each other line of its
// priority.
//
// Locks. The scheduling queue calls Less under its own lock:
//
//	the scheduling queue's lock ► Turns.mu
package fairsort
