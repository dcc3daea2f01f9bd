// SPDX-License-Identifier: Apache-2.0

// Package realnode joins one real node to a devcluster: the unmodified kubelet,
// containerd and runc, without a GPU and beside whatever else runs on the
// machine. Programs of the test, such as a device plugin and the node agent,
// run in the same place as the kubelet and can be killed one by one.
//
// All of it lives in a mount and a PID namespace whose first process is this
// program itself, started again (Init). kubelet's fixed paths, /var/lib/kubelet
// among them, are private there.
//
// Invariant: when the first process ends, for whatever reason, the kernel ends
// every other process of the node, and the mounts go with them. What is left
// then are a folder and empty cgroups; Stop removes both, and the next Start
// removes cgroups that a killed predecessor left.
//
// It needs Linux and root, and does not decide what runs on the node.
package realnode
