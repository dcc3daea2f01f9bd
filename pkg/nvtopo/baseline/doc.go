// SPDX-License-Identifier: Apache-2.0

// Package baseline holds the ways in which other systems choose GPUs, written
// anew from their published rules, to compare the objective with.
//
// Its one invariant: a picker is a pure function of graph, free set and size.
// It is for tests and benchmarks only; no program of this project schedules
// with it.
package baseline
