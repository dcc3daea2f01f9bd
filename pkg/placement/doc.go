// SPDX-License-Identifier: Apache-2.0

// Package placement decides which GPUs, NUMA nodes and CPUs of a node a pod gets, or why it gets none
// (Judge, Choose), and which nodes the members of a gang get (Gang.Plan), from the usage of the nodes and
// the pods' requests. Check and Choose give the same answer from the same usage. It holds no lock.
package placement
