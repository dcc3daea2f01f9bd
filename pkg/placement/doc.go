// SPDX-License-Identifier: Apache-2.0

// Package placement says which GPUs, NUMA nodes and CPUs of a node a pod gets, or why it gets none
// (Judge, Choose), and which nodes the members of a gang get (Gang.Plan): from what is used there
// and what they ask. Check and Choose give the same answer from the same usage. It holds no lock.
package placement
