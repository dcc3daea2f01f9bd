// SPDX-License-Identifier: Apache-2.0

// Package verify compares what kubelet recorded for the pods of a node with what
// the scheduler chose for them. It publishes the result as status.allocations,
// status.kubelet and the conditions Enforced and Pinned of the node's
// NodeGPUTopology, as the Lease that says that the node is enforced, as events and
// as metrics.
//
// Its one invariant: a device that kubelet still counts as given out is published
// as used. If it is not known whether a pod that ended still counts, the entry stays.
//
// It changes no pod: package controller corrects wrong annotations, from what is
// published here. It never asks kubelet to list the resources of all pods, because
// that can make kubelet forget devices that it is about to give out.
package verify
