// SPDX-License-Identifier: Apache-2.0

// Package nvml reads the link graph of the machine it runs on from NVIDIA's management library and from
// sysfs.
//
// It owns the rules that turn driver answers into links, NUMA nodes and health. The driver is behind the
// narrow interfaces Library, Device and EventSet, so that the rules run without a GPU; package live
// implements them.
//
// Its one invariant: a fault of one GPU is a property of that GPU. Discovery fails only when nothing at
// all can be read of the node, and a GPU seen once stays in the graph, unhealthy, until the process
// starts on a new boot.
//
// It does not decide how the graph is used, and it writes nothing.
package nvml
