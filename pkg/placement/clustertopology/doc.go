// SPDX-License-Identifier: Apache-2.0

// Package clustertopology builds the fabric tree of a cluster from its ClusterTopology and its nodes'
// labels, and reports the parts that fit no tree. The scheduler, its controller and the command line tool
// share it.
//
// Its one invariant: every input gives a tree with every node, and each part that could not be used is a
// Problem. All functions are pure and use no cluster.
package clustertopology
