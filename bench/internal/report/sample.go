// SPDX-License-Identifier: Apache-2.0

package report

import (
	"math"
	"slices"
)

// Sample holds repeated measurements of one quantity, in any order. Statistics
// of a sample too small to have them are NaN.
type Sample []float64

// Median is the middle value, or the mean of the two middle ones.
func (s Sample) Median() float64 { return s.Quantile(0.5) }

// Quartiles are the values below which a quarter and three quarters lie.
func (s Sample) Quartiles() (lo, hi float64) { return s.Quantile(0.25), s.Quantile(0.75) }

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

// studentT975 is the 97.5 % quantile of Student's t distribution, by bisection
// of the cumulative distribution: exact to 1e-10, in microseconds.
func studentT975(df int) float64 {
	lo, hi := 0.0, 13.0 // 12.706 for one degree of freedom is the greatest
	for range 60 {
		mid := (lo + hi) / 2
		if studentCDF(mid, df) < 0.975 {
			lo = mid
		} else {
			hi = mid
		}
	}
	return (lo + hi) / 2
}

// studentCDF is the cumulative distribution for t >= 0 and whole degrees of
// freedom: the finite sums of Abramowitz and Stegun, 26.7.3 and 26.7.4.
func studentCDF(t float64, df int) float64 {
	theta := math.Atan(t / math.Sqrt(float64(df)))
	sin, cos := math.Sincos(theta)
	sum, term := 0.0, 1.0
	if df%2 == 1 {
		term = cos
		for i := 3; i <= df; i += 2 {
			sum += term
			term *= cos * cos * float64(i-1) / float64(i)
		}
		return 0.5 + (theta+sin*sum)/math.Pi
	}
	for i := 2; i <= df; i += 2 {
		sum += term
		term *= cos * cos * float64(i-1) / float64(i)
	}
	return 0.5 + sin*sum/2
}
