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
// It changes nothing. It reads files and, with --node, one object of a cluster; check
// reads every object that concerns GPUs.
package cli
