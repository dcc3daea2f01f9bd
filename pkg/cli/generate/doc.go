// SPDX-License-Identifier: Apache-2.0

// Package generate writes files for the use of one machine: kubelet's configuration, a pod, a docker
// command line, NCCL's topology file and a profile of the scheduler. Its functions are pure: the same
// input gives the same bytes.
//
// Its one invariant: nothing about the machine is guessed. A property that its graph lacks is left out if
// the reader of the file finds it itself, and is an error with ErrNotKnown otherwise.
//
// It reads no files and no cluster; pkg/cli has the flags.
package generate
