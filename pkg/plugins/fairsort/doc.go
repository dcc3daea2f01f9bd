// SPDX-License-Identifier: Apache-2.0

// Package fairsort is the FairSort plugin. It orders the scheduling queue by priority, as PrioritySort
// does, and lets the namespaces take turns among pods of one priority: a pod does not wait for all earlier
// pods of another namespace.
//
// Waiting pods are in lines: of one namespace and priority, those that were never tried, and those that
// were. Its one invariant: the k-th pod of its line is tried after at most k+1 pods of each other line of
// its priority.
//
// Locks. The scheduling queue calls Less under its own lock:
//
//	the scheduling queue's lock ► Turns.mu
package fairsort
