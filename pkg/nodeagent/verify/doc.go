// SPDX-License-Identifier: Apache-2.0

// Package verify compares what kubelet recorded for the pods of a node with what
// the scheduler chose for them, and publishes the outcome: status.allocations,
// the conditions Enforced and Pinned and status.kubelet of the node's
// NodeGPUTopology, the Lease that says the node is enforced, events and metrics.
//
// Its one invariant: a device that kubelet still counts as given out is published
// as used. Where it cannot tell whether a pod that ended still counts, it keeps the
// entry.
//
// It changes no pod: annotations that no longer tell the truth are corrected by
// package controller, from what is published here. It never asks kubelet to list
// all pods' resources, since that makes kubelet forget devices it is about to give.
package verify
