// SPDX-License-Identifier: Apache-2.0

// Package judge says what placements are worth to those who run on them: the time of an
// all-reduce, the time of a run, and waits. It knows link graphs and data sheets, and shares
// no code with what chooses GPUs, so that it cannot repeat an error of the score.
package judge
