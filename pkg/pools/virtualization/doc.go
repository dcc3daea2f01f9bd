// SPDX-License-Identifier: Apache-2.0

// Package virtualization makes NVIDIA's managers divide the devices of a pool's nodes according to the
// pool's spec: it cordons and drains a node, labels it, waits for the manager, and uncordons it. At most
// one node of a pool is being changed at any time, and a cordon by others is never lifted.
package virtualization
