// SPDX-License-Identifier: Apache-2.0

package report

import (
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/gonum/stat/distuv"
)

// Sample holds repeated measurements of one quantity, in any order. Statistics
// of a sample too small to have them are NaN.
type Sample []float64

// Median is the middle value, or the mean of the two middle ones.
func (s Sample) Median() float64 { return s.Quantile(0.5) }

// Quartiles are the values below which a quarter and three quarters lie.
func (s Sample) Quartiles() (lo, hi float64) { return s.Quantile(0.25), s.Quantile(0.75) }

// Spread prints the median with the quartiles.
func (s Sample) Spread(decimals int) string {
	if len(s) == 0 {
		return Number(math.NaN(), decimals)
	}
	low, high := s.Quartiles()
	return Number(s.Median(), decimals) + " (" + Number(low, decimals) + "–" + Number(high, decimals) + ")"
}

// Number prints a figure; a missing one is a dash.
func Number(v float64, decimals int) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return "–"
	}
	return strconv.FormatFloat(v, 'f', decimals, 64)
}

// Quantile is the value below which the share q (0 … 1) of the sample lies,
// interpolated linearly between neighbours.
func (s Sample) Quantile(q float64) float64 {
	if len(s) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(s))
	at := min(max(q, 0), 1) * float64(len(sorted)-1)
	below := int(at)
	if below == len(sorted)-1 {
		return sorted[below]
	}
	// As a weighted sum, which two infinite neighbours do not turn into NaN.
	w := at - float64(below)
	if w == 0 {
		return sorted[below]
	}
	return (1-w)*sorted[below] + w*sorted[below+1]
}

// Min is the smallest value.
func (s Sample) Min() float64 {
	if len(s) == 0 {
		return math.NaN()
	}
	return slices.Min(s)
}

// Max is the greatest value.
func (s Sample) Max() float64 {
	if len(s) == 0 {
		return math.NaN()
	}
	return slices.Max(s)
}

// Mean is the arithmetic mean.
func (s Sample) Mean() float64 {
	sum := 0.0
	for _, v := range s {
		sum += v
	}
	return sum / float64(len(s))
}

// StdDev is the standard deviation of the population the sample is drawn from.
func (s Sample) StdDev() float64 {
	mean, sum := s.Mean(), 0.0
	for _, v := range s {
		sum += (v - mean) * (v - mean)
	}
	return math.Sqrt(sum / float64(len(s)-1))
}

// CI95 is half the width of the 95 % confidence interval of the mean, by
// Student's t distribution with one degree of freedom less than values.
func (s Sample) CI95() float64 {
	if len(s) < 2 {
		return math.NaN()
	}
	return studentT975(len(s)-1) * s.StdDev() / math.Sqrt(float64(len(s)))
}

// studentT975 is the 97.5 % quantile of Student's t distribution.
func studentT975(df int) float64 {
	return distuv.StudentsT{Sigma: 1, Nu: float64(df)}.Quantile(0.975)
}
