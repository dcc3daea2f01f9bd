// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"math"
	"slices"
	"strings"
	"testing"
)

// checkDurations compares the quantiles of the jobs' durations with those drawn
// from, capped at a day.
func checkDurations(t *testing.T, trace []Job, want quantiles) {
	t.Helper()
	var durations []float64
	for _, j := range trace {
		durations = append(durations, j.DurationS)
	}
	slices.Sort(durations)
	n := float64(len(durations))
	for i, q := range quantileOf {
		// The share of the jobs at or below the quantile is q but for chance: five
		// standard deviations of it.
		tolerance := 5 * math.Sqrt(q*(1-q)/n)
		limit := min(want[i], longest)
		below, _ := slices.BinarySearchFunc(durations, limit, func(d, limit float64) int {
			if d <= limit*(1+1e-12) {
				return -1
			}
			return 1
		})
		share := float64(below) / n
		if share < q-tolerance || limit < longest && share > q+tolerance {
			t.Errorf("%.4f of %d jobs last at most %v s, want %v ± %.4f", share, len(durations), limit, q, tolerance)
		}
	}
	if last := durations[len(durations)-1]; last > longest {
		t.Errorf("a job of %v s, longer than a day", last)
	}
}

// checkPoisson looks at the mean and the variation of the times between arrivals.
func checkPoisson(t *testing.T, trace []Job) {
	t.Helper()
	var last, sum, squares float64
	for _, j := range trace {
		gap := j.ArrivalS - last
		if gap < 0 {
			t.Fatalf("an arrival at %v s after one at %v s", j.ArrivalS, last)
		}
		last = j.ArrivalS
		sum += gap
		squares += gap * gap
	}
	n := float64(len(trace))
	mean := sum / n
	deviation := math.Sqrt(squares/n - mean*mean)
	// Both are 1 s; of n exponential gaps the deviation varies by sqrt(2/n).
	if tolerance := 5 * math.Sqrt(2/n); math.Abs(mean-1) > tolerance || math.Abs(deviation-1) > tolerance {
		t.Errorf("gaps of %.3f ± %.3f s, want 1 ± 1", mean, deviation)
	}
}

// TestSyntheticQuantiles: synthetic traces have the published quantiles.
func TestSyntheticQuantiles(t *testing.T) {
	type demand struct{ gpus, pods int }
	cases := map[string]struct {
		pods  int
		share map[demand]float64
		lasts map[demand]quantiles
	}{
		"multigpu50": {
			pods:  100_000,
			share: map[demand]float64{{1, 1}: 0.55, {2, 1}: 0.17, {4, 1}: 0.16, {8, 1}: 0.12},
			lasts: map[demand]quantiles{
				{1, 1}: phillyDurations(1), {2, 1}: phillyDurations(1), {4, 1}: phillyDurations(1), {8, 1}: phillyDurations(1),
			},
		},
		"philly": {
			pods: 200_000,
			share: map[demand]float64{
				{1, 1}: 76627. / 82240, {2, 1}: 1818. / 82240, {4, 1}: 1870. / 82240, {8, 1}: 1643. / 82240, {8, 2}: 199. / 82240,
				{8, 4}: 67. / 82240, // 24, 64 and 128 GPUs: 16 jobs in all
			},
			lasts: map[demand]quantiles{
				{1, 1}: phillyDurations(1), {2, 1}: phillyDurations(2), {4, 1}: phillyDurations(4), {8, 1}: phillyDurations(8),
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			trace, err := Synthetic(name, tc.pods, 7)
			if err != nil {
				t.Fatal(err)
			}
			checkPoisson(t, trace)
			by := map[demand][]Job{}
			pods := 0
			for _, j := range trace {
				by[demand{j.GPUs, j.Pods}] = append(by[demand{j.GPUs, j.Pods}], j)
				pods += j.Pods
			}
			if pods < tc.pods || pods > tc.pods+15 {
				t.Errorf("%d pods, want %d", pods, tc.pods)
			}
			n := float64(len(trace))
			for d, want := range tc.share {
				got := float64(len(by[d])) / n
				if tolerance := 5 * math.Sqrt(want*(1-want)/n); math.Abs(got-want) > tolerance {
					t.Errorf("%+v: share %.4f of the jobs, want %.4f ± %.4f", d, got, want, tolerance)
				}
			}
			for d, want := range tc.lasts {
				checkDurations(t, by[d], want)
			}
			again, err := Synthetic(name, tc.pods, 7)
			if err != nil || !slices.Equal(trace, again) {
				t.Errorf("the same seed gives another trace (error %v)", err)
			}
			if other, _ := Synthetic(name, tc.pods, 8); slices.Equal(trace, other) {
				t.Error("another seed gives the same trace")
			}
		})
	}
}

// TestDurationQuantiles: durations rise with their quantile.
func TestDurationQuantiles(t *testing.T) {
	for _, gpus := range []int{1, 2, 4, 8, 16} {
		q := phillyDurations(gpus)
		last := 0.0
		for u := 0.0; u <= 1; u += 1.0 / 1024 {
			d := q.at(u)
			if !(d >= last && d > 0 && d <= longest) {
				t.Errorf("%d GPUs: %v s at %v after %v s", gpus, d, u, last)
			}
			last = d
		}
		for i, u := range quantileOf {
			if want := min(q[i], longest); math.Abs(q.at(u)-want) > 1e-9*want {
				t.Errorf("%d GPUs: %v s at %v, want %v", gpus, q.at(u), u, want)
			}
		}
	}
}

// TestUnknownSyntheticTraces: unknown synthetic traces are refused.
func TestUnknownSyntheticTraces(t *testing.T) {
	for _, name := range SyntheticNames() {
		if got, err := Synthetic(name, 10, 1); err != nil || len(got) == 0 {
			t.Errorf("%s: %d jobs, error %v", name, len(got), err)
		}
	}
	if _, err := Synthetic("helios", 10, 1); err == nil || !strings.Contains(err.Error(), "multigpu50, philly") {
		t.Errorf("error %v, want one that lists the names", err)
	}
	if _, err := Synthetic("philly", 0, 1); err == nil || !strings.Contains(err.Error(), "0 pods") {
		t.Errorf("error %v, want one about the pods", err)
	}
}
