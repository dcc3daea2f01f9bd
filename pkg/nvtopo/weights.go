// SPDX-License-Identifier: Apache-2.0

package nvtopo

import "math"

// maxGroup is the largest group size that is part of the residual capacity.
const maxGroup = 8

// Weights are the weights of the residual capacity by group size.
type Weights struct {
	// Group[g] is w_g in thousandths for groups of g = 2 … 8 GPUs; the rest is ignored. Negative weights are
	// treated as zero.
	Group [maxGroup + 1]int64
}

// weightScale is the resolution of a weight: thousandths.
const weightScale = 1000

// WeightsOf converts weights by group size. It rounds to thousandths and ignores sizes that are not used.
func WeightsOf(byGroup map[int]float64) Weights {
	var w Weights
	for g := 2; g <= maxGroup; g++ {
		w.Group[g] = int64(math.Round(byGroup[g] * weightScale))
	}
	return w
}

// DefaultWeights returns the published weights: 1 for groups of 2, 4 and 8 GPUs, the sizes that jobs
// request, and a quarter for the other sizes.
func DefaultWeights() Weights {
	var w Weights
	for g := 2; g <= maxGroup; g++ {
		w.Group[g] = 250
		if g == 2 || g == 4 || g == 8 {
			w.Group[g] = 1000
		}
	}
	return w
}
