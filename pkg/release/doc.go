// SPDX-License-Identifier: Apache-2.0

// Package release says which release a program is of, with which others it works, and
// in which namespace they are installed.
//
// Its one invariant: Level grows by one in each release that changes anything the
// programs tell each other (the annotations on pods, NodeGPUTopology, Leases, files
// on the node, arguments), and programs whose levels are at most one apart work
// together in every combination (docs/upgrade.md).
//
// It reads and writes nothing.
package release
