// SPDX-License-Identifier: Apache-2.0

// Package slurm reads the tree of switches that Slurm's topology.conf describes, and the
// lists of host names that it is written in.
//
// Its one invariant: what it returns is a tree in which every node is behind one leaf
// switch. It refuses what is none, by line. Blocks and topology.yaml it does not read.
package slurm
