// SPDX-License-Identifier: Apache-2.0

// Package cli is the command nvtopo, also installed as kubectl-nvtopo. It answers
// questions about the GPU links of one machine with the library that the scheduler
// uses.
//
// Its one invariant: the command's output is the answer and nothing else. If there is
// no answer (or, for check, bad news), the result is an error that names the flag,
// file, line or field at fault, with its own exit code (see ExitCode). GPUs are always
// read and printed by their index, never by their position in a graph.
//
// It reads files and, of a cluster, the objects that concern GPUs. It changes nothing but
// for `fabric label --apply`.
package cli
