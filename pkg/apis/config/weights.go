// SPDX-License-Identifier: Apache-2.0

package config

import "github.com/nvtopo/nvtopo/pkg/nvtopo"

const (
	// minGroup is the smallest group of GPUs with a link in it.
	minGroup = 2
	// weightScale is nvtopo's resolution of a residual weight: thousandths.
	weightScale = 1000
	// maxResidualWeight keeps weighted sums far inside an int64.
	maxResidualWeight = 10
)

// Weights returns residualWeights in the library's form. Call it on validated
// arguments: it rounds to thousandths and ignores group sizes that cannot be.
func (c *CommonArgs) Weights() nvtopo.Weights { return nvtopo.WeightsOf(c.ResidualWeights) }
