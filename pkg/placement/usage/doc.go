// SPDX-License-Identifier: Apache-2.0

// Package usage computes the usage of a node from its topology, its pods, kubelet's records and the
// assumed allocations. It takes data and returns data, holds no lock, and keeps no state: equal input
// gives an equal result.
package usage
