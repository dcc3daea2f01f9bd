// SPDX-License-Identifier: Apache-2.0

// Package clustertopology makes the fabric of a cluster of its ClusterTopology and of its
// nodes' labels, and says what in them makes no tree. It is what the scheduler, its
// controller and the command line tool have in common.
//
// Its one invariant: every input gives a tree with every node, and what could not be used is
// a Problem. All functions are pure; nothing here talks to a cluster.
package clustertopology
