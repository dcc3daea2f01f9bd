// SPDX-License-Identifier: Apache-2.0

// Package engine answers what-if: it runs kube-scheduler with these plugins and a snapshot's
// configuration over the snapshot's objects in memory, adds the pods of the question, and reports their
// outcomes.
//
// Its one invariant: the scheduler itself decides. Nothing here filters, scores or chooses. It is made
// for a process of its own: kube-scheduler's metrics and feature gates are one per process.
package engine
