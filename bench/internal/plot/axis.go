// SPDX-License-Identifier: Apache-2.0

package plot

import (
	"math"
	"strconv"

	gonum "gonum.org/v1/plot"
)

// logScale is the axis of Panel.Log.
type logScale struct{}

// Normalize returns where a value lies between the limits, from 0 to 1.
func (logScale) Normalize(low, high, v float64) float64 {
	return (math.Log1p(v) - math.Log1p(low)) / (math.Log1p(high) - math.Log1p(low))
}

// powerTicks are 0 and the powers of ten.
type powerTicks struct{}

// Ticks returns the ticks within the limits.
func (powerTicks) Ticks(low, high float64) []gonum.Tick {
	var out []gonum.Tick
	if low <= 0 {
		out = append(out, gonum.Tick{Value: 0, Label: "0"})
	}
	for v := 1.0; v <= high; v *= 10 {
		if v >= low {
			out = append(out, gonum.Tick{Value: v, Label: strconv.FormatFloat(v, 'f', 0, 64)})
		}
	}
	return out
}

// evenTicks labels about five round values; gonum's own ticks label three.
type evenTicks struct{}

// Ticks returns the multiples of a round step within the limits.
func (evenTicks) Ticks(low, high float64) []gonum.Tick {
	if !(high > low) {
		return nil
	}
	step := math.Pow(10, math.Floor(math.Log10((high-low)/5)))
	for _, by := range []float64{2, 2.5, 2} { // 2, 5 and 10 times a power of ten
		if (high-low)/step <= 6 {
			break
		}
		step *= by
	}
	var out []gonum.Tick
	for i := math.Ceil(low / step); i*step <= high*(1+1e-9); i++ {
		v := i*step + 0 // the sum turns the -0 that Ceil gives into 0
		out = append(out, gonum.Tick{Value: v, Label: strconv.FormatFloat(v, 'g', 6, 64)})
	}
	return out
}

// valueTicks puts a tick at each value and nowhere else.
func valueTicks(values []float64) gonum.ConstantTicks {
	out := make(gonum.ConstantTicks, len(values))
	for i, v := range values {
		out[i] = gonum.Tick{Value: v, Label: strconv.FormatFloat(v, 'g', -1, 64)}
	}
	return out
}
