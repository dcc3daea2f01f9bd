// SPDX-License-Identifier: Apache-2.0

// Package verify compares kubelet's records of the pods of a node with the scheduler's choices. It
// publishes the result as status.allocations, status.kubelet and the conditions Enforced and Pinned of
// the node's NodeGPUTopology, as the Lease that marks the node as enforced, as events and as metrics.
//
// Invariant: a device that kubelet still treats as allocated is published as used. If it is not known
// whether a pod that ended still has its devices, the entry stays.
//
// It changes no pod: package controller corrects wrong annotations, from the status published here. It
// never lists the resources of all pods, because that can make kubelet forget devices that it is about to
// allocate.
package verify
