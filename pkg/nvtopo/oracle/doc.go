// SPDX-License-Identifier: Apache-2.0

// Package oracle answers the published objective by brute force, as a second opinion for tests and for
// the demo's check of every placement.
//
// Its one invariant: of package nvtopo it shares the graph with its bandwidths and NUMA distances, the
// set type, the constraint and the default weights, and no other code. So a mistake in the choice is not
// repeated; a mistake in the shared parts is: a wrong bandwidth is wrong in both. The tables have another
// brute force in their own tests (brute_test.go), which also does without the constraint. Every
// comparison is between exact integers; the code follows the text of the objective line by line and
// prefers being obviously correct to being fast.
//
// It is meant for graphs of up to 16 GPUs: every set is tried. It does not partition a node for several
// jobs and ignores health; the caller's free set holds only GPUs that may be used.
package oracle
