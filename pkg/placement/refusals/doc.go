// SPDX-License-Identifier: Apache-2.0

// Package refusals marks nodes whose kubelet refuses pods with GPUs again and again, so that other nodes
// are preferred for a while: a pod's controller makes a new pod at once, and the scheduler would send it
// to the same node, which looks empty.
//
// Its one invariant: a node is marked only for refusals by its own kubelet of pods that were sent to it,
// and never for long. Each such pod is included once and for Window, and those of one namespace on
// NodesOfNamespace nodes at most, so that one tenant cannot have many nodes avoided. Marks order nodes; no
// pod is refused because of one.
package refusals
