// SPDX-License-Identifier: Apache-2.0

// Package cli is the command nvtopo, also installed as kubectl-nvtopo. It reports the GPU links of one
// machine with the library that the scheduler uses, and the state of a cluster.
//
// Its one invariant: the command's output is the result and nothing else. If there is no result (or, for
// check, violations), the command returns an error that names the flag, file, line or field at fault, with
// its own exit code (see ExitCode). GPUs are always read and printed by their index, never by their
// position in a graph.
//
// It reads files and, of a cluster, the objects that concern GPUs. Only `fabric label --apply`,
// `uninstall`, `pool invoice --export` and `pool settle` change a cluster.
package cli
