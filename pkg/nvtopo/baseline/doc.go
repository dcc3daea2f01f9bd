// SPDX-License-Identifier: Apache-2.0

// Package baseline holds the ways in which other systems choose GPUs on a node, and
// nodes for a gang, written anew from their published rules, to compare the
// objective with.
//
// Its one invariant: a rule is a pure function of what is free and what is asked.
// It is for tests and benchmarks only; no program of this project schedules
// with it.
package baseline
