// SPDX-License-Identifier: Apache-2.0

// Package engine answers what-if: it runs kube-scheduler with our plugins, as a snapshot's
// configuration says, over the snapshot's objects in memory, adds the pods asked for, and tells what
// became of them.
//
// Its one invariant: what decides is the scheduler itself. Nothing here filters, scores or chooses.
// It is made for a process of its own: kube-scheduler's metrics and feature gates are one per process.
package engine
