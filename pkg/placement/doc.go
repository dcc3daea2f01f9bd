// SPDX-License-Identifier: Apache-2.0

// Package placement says which GPUs, NUMA nodes and CPUs of a node a pod gets, or why it
// gets none: from what is used there and what the pod asks. Check and Choose give the same
// answer from the same usage. It holds no lock and remembers nothing.
package placement
