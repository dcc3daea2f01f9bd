// SPDX-License-Identifier: Apache-2.0

// Package cordons tracks the nodes that take no pods with devices because their devices are being
// divided, and such pods in flight to a node. From both follows when this process may acknowledge a
// cordon.
//
// Its one invariant: once Words has a node without pods in flight, no Binding of this process puts a pod
// with devices on it until the cordon is lifted.
//
// The pool controller divides a node's devices some time after it cordoned it. That time alone does not
// suffice: a scheduler may take minutes between its choice of a node and the Binding, for volumes that
// are provisioned, for the other pods of a gang, or for an API server that is slow. So the controller
// writes a token on the node (v1alpha1.AnnotationDraining), and the scheduler answers with the condition
// CordonAcknowledged of the node's NodeGPUTopology, which names the token.
//
// A pod is in flight from its Reserve, which refuses a node with a token in the same critical section,
// until its Binding is answered. If the attempt fails it stays so for requestTimeout: an error does not
// prove that the API server does not bind it later. Bound pods are found by the controller: it lists the
// node's pods after it has read the acknowledgement.
//
// A change of leaders between the acknowledgement and the division is safe:
//
//   - The old leader sends a Binding only while its Lease is not over, and the API server carries it
//     out within requestTimeout. The new one acknowledges nothing before that time since its
//     election is over (leader.Settled).
//   - The new leader keeps the acknowledgements of the old one. Either its cache has the cordon, and
//     Reserve refuses the node. Or its cache is late: then, for leader.ConfirmFor after its
//     election, it reads each node from the API server before it sends a Binding with devices. The
//     cordon was written before the old leader saw it, and so before the election: the read shows it.
//   - A deposed leader that acknowledges late has seen the cordon while it led. So the new leader's
//     reads show that, too.
package cordons
