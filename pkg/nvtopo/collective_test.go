// SPDX-License-Identifier: Apache-2.0

package nvtopo

import (
	"math"
	"testing"
)

func TestCollectives(t *testing.T) {
	t.Parallel()
	const gb = 1e9
	fast := CostModel{Bandwidth: 600_000_000}                // 600 GB/s
	slow := CostModel{Bandwidth: 10_000_000, Latency: 5_000} // 10 GB/s, 5 µs
	for name, tc := range map[string]struct {
		got, want float64 // seconds
	}{
		"the golden all-reduce: 100/1024 GB, 8 GPUs, 600 GB/s": {fast.AllReduce(AlgorithmRing, 8, 100*gb/1024), 0.284830729e-3},
		"the same in SI units":                                 {fast.AllReduce(AlgorithmRing, 8, 0.1*gb), 0.29166666667e-3},
		"ring of two":                                          {slow.AllReduce(AlgorithmRing, 2, gb), 0.1 + 2*5e-6},
		"ring of three":                                        {slow.AllReduce(AlgorithmRing, 3, gb), 4./3*0.1 + 4*5e-6},
		"tree of two":                                          {slow.AllReduce(AlgorithmTree, 2, gb), 2 * (0.1 + 5e-6)},
		"tree of five has three rounds each way":               {slow.AllReduce(AlgorithmTree, 5, gb), 6 * (0.1 + 5e-6)},
		"tree of eight":                                        {slow.AllReduce(AlgorithmTree, 8, gb), 6 * (0.1 + 5e-6)},
		"halving of eight":                                     {slow.AllReduce(AlgorithmRecursiveHalving, 8, gb), 7./4*0.1 + 6*5e-6},
		"halving of six folds two GPUs away":                   {slow.AllReduce(AlgorithmRecursiveHalving, 6, gb), 3./2*0.1 + 4*5e-6 + 2*(0.1+5e-6)},
		"all-gather by ring":                                   {slow.AllGather(AlgorithmRing, 4, gb), 3./4*0.1 + 3*5e-6},
		"all-gather by tree":                                   {slow.AllGather(AlgorithmTree, 4, gb), 3./4*0.1 + 2*5e-6 + 2*(0.1+5e-6)},
		"all-gather by doubling":                               {slow.AllGather(AlgorithmRecursiveHalving, 4, gb), 3./4*0.1 + 2*5e-6},
		"all-gather by doubling of three":                      {slow.AllGather(AlgorithmRecursiveHalving, 3, gb), 0.05 + 5e-6 + 0.1/3 + 5e-6 + 0.1 + 5e-6},
		"reduce-scatter by ring":                               {slow.ReduceScatter(AlgorithmRing, 8, gb), 7./8*0.1 + 7*5e-6},
		"reduce-scatter by halving":                            {slow.ReduceScatter(AlgorithmRecursiveHalving, 8, gb), 7./8*0.1 + 3*5e-6},
		"nothing to send costs the latency":                    {CostModel{Latency: 1000}.AllReduce(AlgorithmRing, 4, 0), 6e-6},
		"one GPU":                                              {slow.AllReduce(AlgorithmRing, 1, gb), 0},
		"one GPU gathers":                                      {slow.AllGather(AlgorithmTree, 1, gb), 0},
		"no GPU":                                               {slow.ReduceScatter(AlgorithmRing, 0, gb), 0},
	} {
		if math.Abs(tc.got-tc.want) > 1e-9*math.Max(tc.want, 1e-3) {
			t.Errorf("%s: %.12f s, want %.12f s", name, tc.got, tc.want)
		}
	}
}

// TestAllReduceBandwidthBound holds for every number of GPUs: an
// all-reduce moves 2(n-1)/n of the buffer through each GPU at least.
func TestAllReduceBandwidthBound(t *testing.T) {
	t.Parallel()
	m := CostModel{Bandwidth: 1_000_000}
	for n := 2; n <= 64; n++ {
		bound := 2 * float64(n-1) / float64(n)
		for _, a := range []Algorithm{AlgorithmRing, AlgorithmTree, AlgorithmRecursiveHalving} {
			if got := m.AllReduce(a, n, 1e9); got < bound-1e-9 {
				t.Errorf("%s of %d GPUs takes %f s, less than the bound %f s", a, n, got, bound)
			}
		}
	}
}

func TestParseAlgorithm(t *testing.T) {
	t.Parallel()
	for _, a := range []Algorithm{AlgorithmRing, AlgorithmTree, AlgorithmRecursiveHalving} {
		if got, err := ParseAlgorithm(a.String()); err != nil || got != a {
			t.Errorf("ParseAlgorithm(%q) = %v, %v", a, got, err)
		}
	}
	if got, err := ParseAlgorithm("recursive_halving"); err != nil || got != AlgorithmRecursiveHalving {
		t.Errorf("with an underscore: %v, %v", got, err)
	}
	if _, err := ParseAlgorithm("butterfly"); err == nil {
		t.Error("an unknown algorithm was read")
	}
}
