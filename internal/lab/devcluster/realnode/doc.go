// SPDX-License-Identifier: Apache-2.0

// Package realnode joins one real node to a devcluster: the unmodified kubelet, containerd and runc,
// without a GPU and beside other programs of the machine. Programs of the test, such as a device plugin
// and the node agent, run in the same place as the kubelet and can be killed one by one.
//
// All of it lives in a mount and a PID namespace whose first process is this program itself, started
// again (Init). kubelet's fixed paths, /var/lib/kubelet among them, are private in them.
//
// Invariant: when the first process ends, for any reason, the kernel ends every other process of the
// node, and the mounts go with them. Only a folder and empty cgroups remain then; Stop removes both, and
// the next Start removes cgroups that a killed predecessor left.
//
// It needs Linux and root, and does not choose the workloads of the node.
package realnode
