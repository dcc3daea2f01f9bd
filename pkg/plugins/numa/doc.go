// SPDX-License-Identifier: Apache-2.0

// Package numa is the NUMAAffinity plugin. It keeps CPUs and memory close to the GPUs, chooses the cpuset,
// and serves pods without GPUs that request NUMA alignment.
//
// Its one invariant: it scores exactly the allocation that Reserve would choose, CPUs included.
//
// It shares the choice and the write with TopologyAware through the packages nodestate and lifecycle, and
// also works without it.
package numa
