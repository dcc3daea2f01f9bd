// SPDX-License-Identifier: Apache-2.0

// Package virtualization has NVIDIA's managers divide the devices of a pool's nodes as the pool's
// spec has it: it cordons and drains a node, labels it, waits for the manager, and uncordons it.
// At most one node of a pool is being changed at any time, and a cordon of somebody else's is
// never lifted.
package virtualization
