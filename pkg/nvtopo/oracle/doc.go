// SPDX-License-Identifier: Apache-2.0

// Package oracle answers the published objective by brute force, as a second
// opinion for tests and for the demo's check of every placement.
//
// Its one invariant: it shares no code with the tables of package nvtopo. It
// reads the graph with its bandwidths and NUMA distances, the set type, the
// constraint and the default weights, and nothing else of it, so a mistake in the
// choice is not repeated. A mistake in those is: a wrong bandwidth is wrong in both. Every comparison is between
// exact integers; the code follows the text of the objective line by line and
// prefers being plainly right to being fast.
//
// It is meant for graphs of up to 16 GPUs: every set is tried. It does not
// partition a node for several jobs and knows nothing of health; the caller's
// free set holds only GPUs that may be used.
package oracle
