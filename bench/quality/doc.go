// SPDX-License-Identifier: Apache-2.0

// Command quality measures how well pods are placed: it replays the same traces under
// the scheduler's own choice and under the policies that a user would run instead, and
// prints tables, a check list of the promised figures, a JSON file and plots.
//
//	go -C bench run ./quality
//
// Its one invariant: within a cell, that is one cluster, trace and load, every policy
// gets the same jobs for the same seed. So differences between policies are taken seed
// by seed, which cancels the differences between traces, and nothing depends on how
// many cells are replayed at a time.
//
// The replay itself is internal/lab/sim, which the command "nvtopo simulate" runs too.
package main
