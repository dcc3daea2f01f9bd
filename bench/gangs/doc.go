// SPDX-License-Identifier: Apache-2.0

// Command gangs measures how gangs are placed on a fabric of racks and spines: it replays the
// same traces under the scheduler's own planner, with and without a topology wait timeout,
// and under the rules of Kueue, Koordinator, Volcano and first fit, and compares the figures
// with bars relative to Kueue's rule of the same run.
//
//	go -C bench run ./gangs
//
// Its one invariant: within a cell every policy gets the same jobs for the same seed, so no
// figure except the times of plans depends on the machine or on how many replays run at a
// time.
//
// The replay itself is internal/lab/sim, which "nvtopo simulate --fabric" runs too.
package main
