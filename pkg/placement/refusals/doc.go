// SPDX-License-Identifier: Apache-2.0

// Package refusals says of which nodes the kubelet refuses pods with GPUs again and again, so that
// other nodes are preferred for a while: a pod's controller makes a new one at once, and the scheduler
// would send that to the same node, which looks empty.
//
// Its one invariant: a node is marked by what its own kubelet did, to pods that were sent there, and
// never for long. Each such pod counts once and for Window, and those of one namespace count on
// NodesOfNamespace nodes at most, so that one tenant cannot have many nodes avoided. Marks order nodes;
// nothing is refused because of one.
package refusals
