// SPDX-License-Identifier: Apache-2.0

// Package generate writes what somebody needs to use one machine well: kubelet's
// configuration, a pod, a docker command line, NCCL's topology file and a profile of the
// scheduler. Its functions are pure: the same input gives the same bytes.
//
// Its one invariant: nothing about the machine is guessed. What its graph does not say is
// left out if the reader finds it himself, and is an error with ErrNotKnown otherwise.
//
// It reads no files and no cluster; pkg/cli has the flags.
package generate
