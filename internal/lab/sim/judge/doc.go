// SPDX-License-Identifier: Apache-2.0

// Package judge measures the value of placements for their users: the time of an all-reduce, the time of
// a run, and waits. It uses link graphs and data sheets, and shares no code with the choice of GPUs, so
// that it cannot repeat an error of the score.
package judge
