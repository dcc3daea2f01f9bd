// SPDX-License-Identifier: Apache-2.0

// Package cli is the command nvtopo, also installed as kubectl-nvtopo: it
// answers questions about the GPU links of one machine with the library that
// the scheduler uses.
//
// Its one invariant: whatever can be answered is written to the command's
// output and nothing else is; what cannot (or, of check, is bad news) is an error with an exit code of its
// own (see ExitCode) that names the flag, file, line or field at fault. GPUs are
// always given and printed by their index, never by their position in a graph.
//
// It changes nothing: it reads files and, with --node, one object of a cluster;
// check reads all that speaks of GPUs.
package cli
