// SPDX-License-Identifier: Apache-2.0

// Package topology is the TopologyAware plugin. It keeps pods off nodes that cannot
// give them GPUs with the links they ask for. It scores the other nodes by how good the
// best choice there is and how little it harms later pods, and it makes the choice.
//
// Its one invariant: the set that Score judges and the set that Reserve takes come from
// the same function over the same kind of view.
//
// Package nodestate chooses and does the bookkeeping. Package lifecycle has the
// extension points that this plugin shares with NUMAAffinity.
package topology
