// SPDX-License-Identifier: Apache-2.0

// Package numa is the NUMAAffinity plugin: it keeps CPUs and memory beside the
// GPUs, chooses the cpuset, and serves pods without GPUs that ask for NUMA
// alignment.
//
// Its one invariant: what it scores is the choice that Reserve would make, CPUs
// included.
//
// It shares the choice and the write with TopologyAware through the packages
// nodestate and lifecycle, and works without it.
package numa
