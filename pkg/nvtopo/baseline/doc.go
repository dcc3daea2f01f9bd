// SPDX-License-Identifier: Apache-2.0

// Package baseline implements the rules by which other systems choose GPUs on a node, and nodes for a
// gang, rewritten from their published descriptions, for comparison with the objective.
//
// Its one invariant: a rule is a pure function of the free GPUs and the request. It is for tests and
// benchmarks only; no program of this project schedules with it.
package baseline
